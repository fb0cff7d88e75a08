"""A plan trains with its job's global batch, or is refused with the field to change."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import parsim
from parsim import PlanError
from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.legal import illegal
from parsim.cost.software import software
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import Plan, PlanSpace

JOB = Job(
    model=build_transformer(model_spec("gpt-1.7b")),
    cluster=Cluster(system=load_catalog().system("dgx-a100"), num_nodes=1),
    software=software("generic"),
    global_batch_size=64,
)
PLAN = Plan(tp=2, dp_replicate=4, microbatch_size=1, num_microbatches=16)


def test_a_plan_that_meets_the_batch_is_legal() -> None:
    assert illegal(JOB, PLAN) is None
    assert illegal(JOB, replace(PLAN, microbatch_size=2, num_microbatches=8)) is None
    assert illegal(replace(JOB, global_batch_size=None), replace(PLAN, microbatch_size=2)) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"microbatch_size": 2},
            "num_microbatches=16 x microbatch_size=2 x dp=4 = 128, but global_batch_size=64; use "
            "num_microbatches=8",
        ),
        (
            {"microbatch_size": 3},
            "global_batch_size=64 is not divisible by microbatch_size=3 x dp=4 = 12; use a "
            "multiple of 12, or a microbatch_size x dp that divides 64",
        ),
        (
            {"replica_microbatches": (16, 16, 16, 15)},
            "replica_microbatches=[16, 16, 16, 15] x microbatch_size=1 = 63, but "
            "global_batch_size=64; sum to 64",
        ),
    ],
)
def test_another_batch_is_refused_with_the_field_to_change(
    changes: dict[str, object], message: str
) -> None:
    plan = replace(PLAN, **changes)  # type: ignore[arg-type]
    assert illegal(JOB, plan) == message
    with pytest.raises(PlanError, match=f"^{re.escape(message)}$"):
        parsim.simulate(JOB, plan)


def test_a_search_of_another_batch_is_refused() -> None:
    with pytest.raises(PlanError, match=r"^global_batch_size=32 of the space .*_size=64$"):
        parsim.search(JOB, PlanSpace(global_batch_size=32))
