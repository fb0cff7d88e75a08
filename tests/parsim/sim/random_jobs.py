"""A seeded sample of jobs and legal plans: shipped models on small clusters of several systems."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product

from parsim.cluster.hardware import Cluster, System
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.legal import illegal
from parsim.cost.software import software
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import Plan, Recompute
from parsim.plan.names import SCHEDULE_NAMES
from parsim.plan.rules.degrees import divisors

MODELS = ("gpt-1.7b", "llama3-8b", "bert-large", "qwen3-30b-a3b")
SYSTEMS = ("dgx-a100", "dgx-h100", "dgx-b200", "dgx-2", "rtx-4090-node", "aws-p5")
STACKS = ("generic", "megatron-lm", "megatron-bridge", "torchtitan")


@cache
def random_jobs(seed: int, count: int) -> tuple[tuple[Job, Plan], ...]:
    """So many different pairs."""
    rng = random.Random(seed)
    pairs: list[tuple[Job, Plan]] = []
    while len(pairs) < count:
        job = _job(rng)
        plan = _plan(rng, job)
        if illegal(job, plan) is None:
            pairs.append((job, plan))
    return tuple(pairs)


def on(job: Job, system: System) -> Job:
    """The job on as many nodes of another system."""
    return replace(job, cluster=replace(job.cluster, system=system))


def faster(system: System, times: float) -> Iterator[tuple[str, System]]:
    """The system with one of its parts better by a factor, for each part that it has."""
    device, intra, network = system.device, system.intra, system.network
    peaks = {name: peak * times for name, peak in device.peak_flops.items()}
    memory = replace(device, memory_bandwidth=device.memory_bandwidth * times)
    yield "arithmetic", replace(system, device=replace(device, peak_flops=peaks))
    yield "memory", replace(system, device=memory)
    yield "links", replace(system, intra=replace(intra, bandwidth=intra.bandwidth * times))
    yield "hops", replace(system, intra=replace(intra, latency=intra.latency / times))
    if network is not None:
        wide = replace(network, nic_bandwidth=network.nic_bandwidth * times)
        yield "interfaces", replace(system, network=wide)
        yield (
            "network latency",
            replace(system, network=replace(network, latency=network.latency / times)),
        )


def _job(rng: random.Random) -> Job:
    system = load_catalog().system(rng.choice(SYSTEMS))
    return Job(
        model=build_transformer(model_spec(rng.choice(MODELS))),
        cluster=Cluster(system=system, num_nodes=rng.choice((1, 2, 4))),
        software=software(rng.choice(STACKS)),
    )


def _plan(rng: random.Random, job: Job) -> Plan:
    ranks = job.cluster.num_devices
    ways = product(divisors(ranks), divisors(ranks), (1, 1, 2, 4), divisors(ranks))
    pp, tp, cp, dp = rng.choice([way for way in ways if math.prod(way) == ranks])
    zero = rng.choice((0, 1, 2, 3)) if dp * cp > 1 else 0
    shard = rng.choice((dp, rng.choice(divisors(dp)))) if zero else 1
    plan = Plan(
        pp=pp,
        tp=tp,
        cp=cp,
        dp_shard=shard,
        dp_replicate=dp // shard,
        zero_stage=zero,
        sequence_parallel=tp > 1 and rng.random() < 0.5,
        microbatch_size=rng.choice((1, 2, 4)),
        num_microbatches=rng.choice((1, 2, 4, 8)),
        recompute=rng.choice(tuple(Recompute)),
        bucket_bytes=rng.choice((1e7, 1e8, 1e9)),
        overlap_grad_reduce=rng.random() < 0.8,
        precision=rng.choice(("bf16", "fp16")) if "bf16" in job.device.peak_flops else "fp16",
    )
    if job.model.experts is not None:
        plan = replace(plan, ep=rng.choice(divisors(plan.stage_ranks)))
    return plan if pp == 1 else _with_schedule(rng, plan)


def _with_schedule(rng: random.Random, plan: Plan) -> Plan:
    name = rng.choice(SCHEDULE_NAMES)
    chunks = {"interleaved_1f1b": 3, "zb_v": 2, "v_half": 2, "v_min": 2}.get(name, 1)
    microbatches = plan.pp * -(-plan.num_microbatches // plan.pp)
    return replace(plan, schedule=name, v=chunks, num_microbatches=microbatches)
