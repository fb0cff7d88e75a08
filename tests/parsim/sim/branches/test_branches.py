"""Branches on devices apart: tiers, links, bytes, memory, placements, and what is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from parsim.cost.job import Job
from parsim.cost.legal import illegal
from parsim.model.graph.build import build_graph
from parsim.model.graph.catalog import network
from parsim.model.reader import load_model_catalog
from parsim.model.transformer import build_transformer
from parsim.plan import Plan, Recompute
from parsim.plan.strategies import BranchParallel
from parsim.scenario import load_scenario
from parsim.sim import simulate
from parsim.sim.branches.placement import placed
from parsim.sim.branches.priced import Branched
from parsim.sim.data_parallel.families.priced import Priced
from parsim.sim.data_parallel.priced_strategy import PricedStrategy
from parsim.sim.data_parallel.shared_links import contention_of
from parsim.sim.program import by_recurrence
from parsim.sim.recurrence.evaluate import evaluate
from tests.parsim.sim.branches.models import MODELS
from tests.parsim.sim.graph_job import graph_job
from tests.parsim.sim.strategy_tiers import assert_tiers_agree

FP32 = 4
SCENARIOS = Path(__file__).parents[4] / "scenarios"


@cache
def job(name: str, devices: int = 8, nodes: int = 1) -> Job:
    """A small model on so many V100 of each node."""
    return graph_job(MODELS[name](), devices, nodes)


def plan(devices: int = 2, branches: dict[str, int] | None = None, **values: Any) -> Plan:
    """Eight workers in groups of so many devices."""
    given = None if branches is None else tuple(branches.items())
    chosen = {"dp_replicate": 8, "precision": "fp32", "microbatch_size": 16, **values}
    return Plan(strategy=BranchParallel(devices=devices, branches=given), **chosen)


def priced(name: str, which: Plan, nodes: int = 1) -> tuple[Priced, Branched]:
    """The program of a plan with its prices."""
    evaluation = evaluate(job(name, which.dp // nodes, nodes), which.whole_models)
    made = PricedStrategy.of(evaluation, which).priced
    assert isinstance(made.together, Branched)
    return made, made.together


@pytest.mark.parametrize(
    ("name", "which"),
    [
        ("modules", plan(branches={"first.1": 1, "second.pool": 1, "third.1.wide": 1})),
        ("modules", plan(num_microbatches=3)),
        ("towers", plan(branches={"conv1b": 1, "cross2b": 1})),
        ("tasks", plan(3, {"head1": 1, "head2": 2}, dp_replicate=6, num_microbatches=2)),
        ("inception-v3", plan(dp_replicate=2)),
    ],
    ids=["modules", "micro-batches", "towers", "three devices", "inception"],
)
def test_the_recurrence_is_the_events_on_every_task(name: str, which: Plan) -> None:
    made, _ = priced(name, which)
    assert_tiers_agree(made)


def test_all_on_one_device_is_one_device() -> None:
    which = plan(branches={"first.1": 0}, dp_replicate=2)
    made, branched = priced("modules", which)
    end = by_recurrence(made.task_program)
    alone = simulate(job("modules", 1), which.whole_models)
    passes = sum(alone.breakdown[part] for part in ("forward", "backward"))
    assert branched.placement.seconds == pytest.approx(passes, rel=1e-9)
    rest = float(made.seconds["norm"][0]) + alone.breakdown["optimizer"]
    assert float(end.step_time[0]) == pytest.approx(passes + rest, rel=1e-9)
    assert made.sent == 0.0
    first, second = simulate(job("modules", 2), which).memory_by_rank
    assert first["activations"] == pytest.approx(alone.memory["activations"])
    assert second["activations"] == second["parameters"] == 0.0


@pytest.mark.parametrize("name", ["modules", "tasks", "towers", "inception-v3"])
def test_the_search_times_placements_as_the_program_does(name: str) -> None:
    which = plan(dp_replicate=2)
    made, branched = priced(name, which)
    end = by_recurrence(made.task_program)
    passes = [t.name for t in made.program.tasks if t.kind in ("F", "B", "SEND_F", "SEND_B")]
    last = max(float(end.times[task].end.max()) for task in passes)
    assert branched.placement.seconds == pytest.approx(last, rel=1e-12)
    assert branched.placement.bound <= branched.placement.seconds * (1.0 + 1e-12)


@pytest.mark.parametrize(("name", "size"), [("tasks", 64), ("towers", 512)])
def test_what_is_found_is_the_best_of_all_placements(name: str, size: int) -> None:
    which = plan(dp_replicate=2, microbatch_size=size)
    _, branched = priced(name, which)
    names = [branched.branching.paths[n].name for n in branched.branching.branches]
    every = [
        placed(
            branched.branching,
            branched.prices,
            BranchParallel(devices=2, branches=tuple(zip(names, way, strict=True))),
        ).seconds
        for way in product(range(2), repeat=len(names))
    ]
    assert branched.placement.seconds == pytest.approx(min(every), rel=1e-12)


def test_messages_are_the_borders_both_ways() -> None:
    """Out goes what the trunk made, back come a head's loss; in backward the mirror of both."""
    made, branched = priced("tasks", plan(branches={"head1": 1}, dp_replicate=2))
    samples = 32  # two workers' micro-batches of 16
    trunk = 8 * 4 * 4 * samples * FP32  # 8 channels behind two poolings of 16 x 16
    loss = samples * FP32
    assert branched.sent_bytes.tolist() == [trunk, loss]
    assert made.sent == made.received == (trunk + loss) * 2 / 2
    replicated, of_four = priced("tasks", plan(branches={"head1": 1}))
    head = of_four.on_devices(of_four.prices.parameters) * FP32
    assert replicated.sent == pytest.approx(trunk + loss + 2 * head.mean() * 3 / 4)


def test_memory_is_where_the_branches_are() -> None:
    which = plan(branches={"head1": 1}, dp_replicate=2)
    prediction = simulate(job("tasks", 2), which)
    whole = simulate(job("tasks", 1), which.whole_models)
    first, second = prediction.memory_by_rank
    for part in ("parameters", "gradients", "optimizer", "logits"):
        assert first[part] + second[part] == pytest.approx(whole.memory[part])
    copy = 8 * 4 * 4 * 32 * FP32  # what the trunk hands over is there twice; and a loss
    both = first["activations"] + second["activations"]
    assert both == pytest.approx(whole.memory["activations"] + copy + 32 * FP32, rel=1e-9)


def test_branches_on_two_nodes_and_on_shared_links() -> None:
    quiet, _ = priced("modules", plan())
    shared = contention_of(job("modules"), plan())
    assert shared.step_time == pytest.approx(shared.alone, rel=1e-9)
    spread = plan(2, {"conv1b": 1, "cross2b": 1}, dp_replicate=6)  # the second group on both nodes
    made, _ = priced("towers", spread, 2)
    seconds = made.seconds["message"].reshape(-1, 3)
    assert (seconds[:, 1] > seconds[:, 0]).all()
    assert (seconds[:, 2] == seconds[:, 0]).all()
    assert quiet.program.roles[:2] == ("device 0 of replica 0", "device 1 of replica 0")


def test_a_replica_with_slower_links_is_named_and_not_the_gradients() -> None:
    """Devices 0 and 1 of a DGX-1V share one NVLink, 2 and 3 two."""
    scenario = load_scenario(SCENARIOS / "inception-v3-branches-dgx-1v.yaml")
    assert scenario.plan is not None
    figures = simulate(scenario.job, scenario.plan).strategy
    assert figures is not None
    assert figures.limits.startswith("messages between the devices of replica 0, whose passes")


def test_what_takes_long_behind_the_passes_is_named() -> None:
    made, branched = priced("tasks", plan(microbatch_size=1))
    end = float(by_recurrence(made.task_program).step_time[0])
    assert branched.limits(end).startswith("gradients, norm and update behind the passes")


def test_branches_pay_where_they_are_wide() -> None:
    """Three heads on three devices beside a cheap trunk: faster than all heads on one."""
    layout = plan(3, dp_replicate=3, microbatch_size=2048)
    spread = simulate(job("tasks", 3), layout)
    alone = BranchParallel(devices=3, branches=(("head0", 0),))
    stacked = simulate(job("tasks", 3), replace(layout, strategy=alone))
    assert spread.step_time < 0.8 * stacked.step_time
    assert spread.strategy is not None
    assert not spread.strategy.trains_otherwise


@pytest.mark.parametrize(
    ("name", "which", "message"),
    [
        ("tasks", plan(4), "devices=4: at most 3 branches of multi-task-3-4 .*allowed: 2 to 3"),
        ("tasks", plan(1), "devices=1: at most 3 branches"),
        ("tasks", plan(3), "devices=3 does not divide dp=8 workers"),
        ("chain", plan(), "vgg16 has none: no two of its parts compute at once; models"),
        ("tasks", plan(branches={"head7": 1}), "'head7' is no branch of the model"),
        ("tasks", plan(branches={"head1": 2}), "head1: 2 is no device; allowed: 0 to 1"),
        ("tasks", plan(dp_replicate=4, pp=2), "whole layers of one model together, but pp=2"),
        ("tasks", plan(recompute=Recompute.FULL), "use recompute=none"),
        ("tasks", plan(sync_batch_norm=True), "use sync_batch_norm=false, or name=ddp"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_name(name: str, which: Plan, message: str) -> None:
    told = illegal(job(name), which)
    assert told is not None
    assert re.search(message, told), told


def test_models_without_a_graph_and_with_shared_tables_are_refused() -> None:
    chosen = build_transformer(load_model_catalog()["gpt2"])
    told = illegal(replace(job("tasks"), model=chosen), plan())
    assert told is not None
    assert "gpt2 has none" in told
    told = illegal(replace(job("tasks"), model=build_graph(network("t5-small"))), plan())
    assert told is not None
    assert "t5-small share a table" in told
