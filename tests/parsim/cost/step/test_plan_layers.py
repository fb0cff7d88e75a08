"""Layers that are remembered cost what they cost, to the bit, and plans share those they may."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parsim.cost.job import Job
from parsim.cost.software import software
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.plan_layers import layers_of, seen_by_layers
from parsim.plan import Plan, PlanTable, Recompute
from parsim.plan.strategies import ParameterServer
from parsim.scenario import load_scenario
from tests.parsim.sim.random_jobs import random_jobs

OTHERWISE: dict[str, Any] = {
    "schedule": "gpipe",
    "v": 2,
    "bucket_bytes": 1e6,
    "reduce_precision": "same",
    "overlap_grad_reduce": False,
    "overlap_param_gather": False,
    "overlap_p2p": True,
    "scatter_p2p": True,
    "strategy": ParameterServer(),
}
"""Another value of fields that say what happens between layers and behind them."""


def numbers(value: object) -> Iterator[Any]:
    """All arrays of a record of records."""
    if isinstance(value, tuple):
        for item in value:
            yield from numbers(item)
    elif is_dataclass(value):
        for field in fields(value):
            yield from numbers(getattr(value, field.name))
    else:
        yield np.asarray(value)


def assert_equal(first: LayerTable, second: LayerTable) -> None:
    for here, there in zip(numbers(first), numbers(second), strict=True):
        assert np.array_equal(here, there)


def resnet(stack: str) -> tuple[Job, Plan]:
    scenario = load_scenario(Path("scenarios/resnet50-dgx-1v.yaml"))
    plan = replace(scenario.fixed_plan(), microbatch_size=64, num_microbatches=4)
    return replace(scenario.job, software=software(stack)), plan


def jobs() -> list[tuple[Job, Plan]]:
    networks = [resnet(stack) for stack in ("pytorch-ddp", "generic", "torchgpipe", "mxnet")]
    job, plan = resnet("pytorch-ddp")
    spread = [(job, replace(plan, sync_batch_norm=shared)) for shared in (False, True)]
    again = [(each, replace(plan, recompute=Recompute.FULL)) for each, _ in networks]
    return [*random_jobs(16, 60), *networks, *spread, *again]


def test_remembered_layers_are_those_that_the_plan_itself_has() -> None:
    for job, plan in jobs():
        for given in (plan, replace(plan, **OTHERWISE)):
            table = PlanTable.of([given])
            assert_equal(layers_of(job, table), LayerTable.of(job, table))


def test_what_layers_do_not_read_finds_the_same_record() -> None:
    job, plan = resnet("pytorch-ddp")
    known = layers_of(job, PlanTable.of([plan]))
    for name, value in {**OTHERWISE, "pp": 4, "dp_replicate": 2}.items():
        assert layers_of(job, PlanTable.of([replace(plan, **{name: value})])) is known
    smaller = replace(job, global_batch_size=8)
    assert layers_of(smaller, PlanTable.of([plan])) is known
    other = layers_of(job, PlanTable.of([replace(plan, microbatch_size=32)]))
    assert other.kinds[0].forward.kernels < known.kinds[0].forward.kernels


@pytest.mark.parametrize("named", [{"tp": 2}, {"cp": 2}, {"ep": 2}, {"sync_batch_norm": True}])
def test_ranks_that_meet_inside_a_layer_keep_their_places(named: dict[str, Any]) -> None:
    job, plan = random_jobs(16, 1)[0]
    placed = replace(plan, pp=4, dp_replicate=2, tp=1, cp=1, ep=1, etp=1)
    assert seen_by_layers(job, placed).pp == 1
    seen = seen_by_layers(job, replace(placed, **named))
    assert (seen.pp, seen.dp_replicate, seen.rank_order) == (4, 2, plan.rank_order)


def test_several_plans_are_priced_together() -> None:
    job, plan = resnet("pytorch-ddp")
    table = PlanTable.of([replace(plan, microbatch_size=size) for size in (8, 64)])
    together, last = layers_of(job, table), layers_of(job, PlanTable.of([plan]))
    assert_equal(together.take(np.array([1])), last)
