"""Jobs and plans that the simulator's tests predict."""

from __future__ import annotations

from functools import cache

import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.software import software
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import Plan, Recompute

PLANS = {
    "one rank a replica": Plan(dp_replicate=16, num_microbatches=4),
    "naive": Plan(pp=4, dp_replicate=4, num_microbatches=5, schedule="naive"),
    "gpipe": Plan(
        pp=4, dp_replicate=2, tp=2, num_microbatches=6, schedule="gpipe", overlap_p2p=True
    ),
    "1f1b": Plan(pp=8, tp=2, num_microbatches=16, microbatch_size=2),
    "1f1b beside its messages": Plan(
        pp=8, tp=2, num_microbatches=16, overlap_p2p=True, overlap_grad_reduce=False
    ),
    "few micro-batches": Plan(pp=8, dp_replicate=2, num_microbatches=3),
    "interleaved": Plan(pp=4, tp=4, num_microbatches=12, schedule="interleaved_1f1b", v=3),
    "an embedding alone and a head alone": Plan(
        pp=2, dp_replicate=8, num_microbatches=4, schedule="interleaved_1f1b", v=13
    ),
    "ranks without blocks": Plan(pp=4, tp=4, num_microbatches=6, stage_layers=(0, 12, 12, 0)),
    "uneven cut": Plan(pp=4, tp=4, num_microbatches=8, stage_layers=(2, 9, 9, 4)),
    "sequence parallel": Plan(
        pp=4, tp=4, num_microbatches=8, sequence_parallel=True, recompute=Recompute.SELECTIVE
    ),
    "full recomputation": Plan(pp=4, dp_replicate=4, num_microbatches=8, recompute=Recompute.FULL),
    "overlapped buckets": Plan(pp=2, dp_replicate=8, num_microbatches=4, bucket_bytes=5e7),
    "zero 1": Plan(pp=2, dp_shard=8, zero_stage=1, num_microbatches=4),
    "zero 2": Plan(pp=2, tp=2, dp_shard=4, zero_stage=2, num_microbatches=4),
    "zero 3": Plan(
        dp_shard=8,
        dp_replicate=2,
        zero_stage=3,
        num_microbatches=2,
    ),
}
"""Plans for 16 devices: all schedules, shardings, recomputations and both overlap switches."""


@cache
def gpt_job() -> Job:
    """GPT of 24 layers on two DGX A100 under the software of 2021."""
    system = load_catalog().system("dgx-a100")
    model = build_transformer(model_spec("gpt-1.7b"))
    return Job(
        model=model,
        cluster=Cluster(system=system, num_nodes=2),
        software=software("megatron-2021"),
    )


@pytest.fixture(scope="session")
def job() -> Job:
    return gpt_job()


@pytest.fixture(params=PLANS)
def plan(request: pytest.FixtureRequest) -> Plan:
    return PLANS[request.param]
