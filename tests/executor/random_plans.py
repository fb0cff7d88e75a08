"""A seeded sample of all plans that the validator accepts for a few tiny models."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, product

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.model.transformer import TransformerSpec, build_transformer
from parsim.plan import AXES, Plan, Recompute
from parsim.plan.names import SCHEDULE_NAMES
from parsim.plan.rules.degrees import divisors
from parsim.plan.rules.executor.runnable import wrong_experts
from parsim.plan.rules.violation import violation
from tests.executor.random_schedules import random_schedule
from tests.executor.workers.specs import SPECS

FAMILIES = ("gpt", "llama", "llama-mha", "bert")
MIXTURES = ("mixtral", "qwen3", "experts with all")
MODELS = {name: replace(SPECS[name], num_layers=5) for name in (*FAMILIES, *MIXTURES)}
"""Five layers: cuts into two or four stages are uneven, and two ranks may have two chunks."""

OWN = "own.csv"
"""Names a random schedule with split backwards, on any placement."""


def random_plans(
    seed: int,
    *,
    ranks: int,
    count: int,
    precision: str = "fp32",
    families: Sequence[str] = FAMILIES,
) -> Iterator[tuple[str, Plan]]:
    """Different pairs of a model's name and a plan of so many ranks."""
    rng = random.Random(f"{seed}/{ranks}/{precision}")
    system = replace(load_catalog().system("cpu"), devices_per_node=ranks)
    cluster = Cluster(system=system, num_nodes=1)
    seen: set[tuple[str, Plan]] = set()
    while len(seen) < count:
        name = rng.choice(sorted(families))
        plan, model = _draw(rng, MODELS[name], ranks, precision), build_transformer(MODELS[name])
        if plan is None or (name, plan) in seen or wrong_experts(plan, model):
            continue
        if violation(plan, model, cluster) is None:
            seen.add((name, plan))
            yield name, plan


def _draw(rng: random.Random, spec: TransformerSpec, ranks: int, precision: str) -> Plan | None:
    degrees = divisors(ranks)
    pieces = degrees if rng.random() < 0.5 else [1]
    ways = product(degrees, degrees, pieces, degrees)
    pp, tp, cp, dp = rng.choice([way for way in ways if math.prod(way) == ranks])
    zero = rng.choice((0, 1, 2, 3)) if dp * cp > 1 else 0
    shard = rng.choice(divisors(dp)[0 if cp > 1 else 1 :]) if zero else 1
    plan = Plan(
        pp=pp,
        tp=tp,
        cp=cp,
        dp_shard=shard,
        dp_replicate=dp // shard,
        zero_stage=zero,
        sequence_parallel=tp > 1 and rng.random() < 0.5,
        microbatch_size=rng.choice((1, 2)),
        num_microbatches=rng.choice((1, 2, 3, 4)),
        recompute=rng.choice(tuple(Recompute)),
        bucket_bytes=rng.choice((1e4, 1e9)),
        overlap_grad_reduce=rng.random() < 0.8,
        rank_order=tuple(rng.sample(AXES, len(AXES))) if rng.random() < 0.3 else AXES,
        precision=precision,
    )
    plan = _with_experts(rng, plan) if spec.num_experts else plan
    return _with_schedule(rng, spec, plan) if pp > 1 else plan


def _with_experts(rng: random.Random, plan: Plan) -> Plan:
    ep = rng.choice(divisors(plan.stage_ranks))
    return replace(plan, ep=ep, etp=rng.choice(divisors(plan.stage_ranks // ep)))


def _with_schedule(rng: random.Random, spec: TransformerSpec, plan: Plan) -> Plan | None:
    name = rng.choice((*SCHEDULE_NAMES, OWN))
    v = 2 if name == "interleaved_1f1b" else 1
    plan = replace(plan, schedule=name, v=v, num_microbatches=rng.choice((1, 2, 4)))
    if name == OWN:
        made = random_schedule(rng.randrange(10**6), pp=plan.pp)
        if made.num_stages % plan.pp:
            return None
        v, m = made.num_stages // plan.pp, made.num_microbatches
        plan = replace(plan, v=v, num_microbatches=m, actions=made.to_csv())
    if v * plan.pp > spec.num_layers:
        return None
    return replace(plan, stage_layers=_cut(rng, spec.num_layers, plan.num_stages))


def _cut(rng: random.Random, layers: int, stages: int) -> tuple[int, ...] | None:
    """Any cut into stages, of which some may be empty, or the even one."""
    if rng.random() < 0.7:
        return None
    places = sorted(rng.choices(range(layers + 1), k=stages - 1))
    edges = [0, *places, layers]
    return tuple(b - a for a, b in pairwise(edges))
