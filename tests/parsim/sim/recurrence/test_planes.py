"""Planes of ranks: equal to tier B where all are equal, to a simulation of each rank elsewhere."""

from __future__ import annotations

import random

import numpy as np
import pytest

from parsim.arrays import Array
from parsim.cost.step.costs import StepCosts
from parsim.errors import InputError
from parsim.schedule import build_schedule
from parsim.sim.recurrence.evaluate import pipeline
from parsim.sim.recurrence.maxplus import step_end
from parsim.sim.step.compiled_schedule import compile_repeated, compile_schedule
from parsim.sim.step.folding import fold
from parsim.strategy.synchronous import LATE
from tests.parsim.sim.cases import make_costs, random_case
from tests.parsim.sim.recurrence.per_rank import Mesh, Rank, Times, folded_ranks, mesh_ranks
from tests.parsim.sim.recurrence.planes import run_planes, step_time_with_slowdown
from tests.parsim.sim.step.mesh import mesh_links

LAYERS = (2, 3, 3, 2)
PP, DP, TP, M = 4, 4, 2, 8
TIMES = Times(layer=0.0035, collective=0.0004, hop=0.0002, reduction=0.006)


@pytest.mark.parametrize("seed", range(100))
def test_equal_ranks_are_tier_b_bit_for_bit(seed: int) -> None:
    schedule, costs = random_case(seed, dyadic=False)
    graph = compile_schedule(schedule)
    result = pipeline(graph, costs)
    end = step_end(graph, costs, result)
    late = end.times[LATE]
    planes = run_planes(schedule, costs, np.ones((schedule.pp, 3, 2)))
    assert planes.step_time == float(end.step_time[0])
    assert planes.barrier == float(late.end.max())
    assert (planes.clock == result.clock[:, 0, None, None]).all()
    assert (planes.reduced == late.ready[:, 0, None, None]).all()
    assert planes.updated.max() == float(end.updated[0])


def layered_costs() -> StepCosts:
    """The stages of `per_rank`: layers of one forward, two backward, a collective after each."""
    layers = np.array(LAYERS, dtype=np.float64)
    forward, meet = layers * TIMES.layer, layers * TIMES.collective
    costs = make_costs(
        PP,
        PP,
        forward=(forward + meet).tolist(),
        backward=(2 * forward + meet).tolist(),
        hop=TIMES.hop,
        bucket_time=TIMES.reduction,
        overlap=False,
    )
    costs.exposed_forward[:, 0] = costs.exposed_backward[:, 0] = meet
    return costs


def all_ranks(slowdown: Array) -> Mesh:
    return Mesh(
        build_schedule("1f1b", pp=PP, num_microbatches=M),
        LAYERS,
        mesh_ranks(slowdown.tolist()),
        TIMES,
    )


def slowdowns(name: str) -> Array:
    slowdown = np.ones((PP, DP, TP))
    if name == "one slow":
        slowdown[1, 2, 0] = 1.25
    if name == "all differ":
        slowdown += np.random.default_rng(3).uniform(0, 0.05, slowdown.shape)
    return slowdown


@pytest.mark.parametrize("name", ["all equal", "one slow", "all differ"])
def test_planes_are_a_simulation_of_every_rank(name: str) -> None:
    slowdown = slowdowns(name)
    mesh = all_ranks(slowdown)
    planes = run_planes(
        build_schedule("1f1b", pp=PP, num_microbatches=M), layered_costs(), slowdown
    )
    np.testing.assert_allclose(planes.clock.ravel(), mesh.clock, rtol=1e-12)
    np.testing.assert_allclose(planes.reduced.ravel(), mesh.finish, rtol=1e-12)
    assert planes.step_time == pytest.approx(max(mesh.finish), rel=1e-12)


def folded(slowdown: Array) -> tuple[Mesh, list[int]]:
    ranks: list[Rank] = mesh_ranks(slowdown.tolist())
    colours = [(rank.row, rank.slowdown) for rank in ranks]
    folding = fold(colours, *mesh_links(PP, DP, TP))
    schedule = build_schedule("1f1b", pp=PP, num_microbatches=M)
    mesh = Mesh(schedule, LAYERS, folded_ranks(ranks, folding), TIMES)
    return mesh, folding.class_of.tolist()


@pytest.mark.parametrize(
    ("name", "classes"), [("all equal", 4), ("one slow", 16), ("all differ", 32)]
)
def test_folded_ranks_are_all_ranks(name: str, classes: int) -> None:
    everyone = all_ranks(slowdowns(name))
    few, class_of = folded(slowdowns(name))
    assert len(few.finish) == classes
    assert [few.clock[c] for c in class_of] == everyone.clock
    assert [few.finish[c] for c in class_of] == everyone.finish


def test_folding_to_stages_misses_a_slow_rank() -> None:
    """One rank 25 % slow: one rank a stage, the usual shortcut, is wrong by more than 5 %."""
    schedule, slowdown = build_schedule("1f1b", pp=PP, num_microbatches=M), slowdowns("one slow")
    true = step_time_with_slowdown(schedule, layered_costs(), slowdown)
    naive = step_time_with_slowdown(schedule, layered_costs(), np.ones((PP, 1, 1)))
    assert naive < 0.95 * true
    assert max(folded(slowdown)[0].finish) == pytest.approx(true, rel=1e-12)


def test_a_slow_rank_delays_its_own_replica_most() -> None:
    schedule = build_schedule("1f1b", pp=PP, num_microbatches=M)
    clock = run_planes(schedule, layered_costs(), slowdowns("one slow")).clock
    assert (clock[:, 2] > clock[:, [0, 1, 3]].max(axis=1)).all()
    assert (clock[:, [0, 1, 3]] == clock[:, :1, :1]).all()


def test_slowdown_scales_compute_and_optimizer_alone() -> None:
    costs = make_costs(1, 1, forward=1.0, backward=2.0, exposed=0.25, optimizer=0.5, gather=0.25)
    schedule = build_schedule("1f1b", pp=1, num_microbatches=4)
    for factor in (0.0, 1.0, 2.0):
        step = step_time_with_slowdown(schedule, costs, np.full((1, 2, 2), factor))
        assert step == 4 * 3.0 * (0.25 + 0.75 * factor) + 0.5 * factor + 0.25


def test_reduction_overlaps_with_slow_replicas() -> None:
    # buckets are ready at 2 and 3 on the fast replica, at 4 and 6 on the slow one: 6 + 0.5
    costs = make_costs(1, 1, forward=1.0, backward=2.0, buckets=2, bucket_time=0.5)
    slowdown = np.array([[[1.0], [2.0]]])
    run = run_planes(build_schedule("1f1b", pp=1, num_microbatches=1), costs, slowdown)
    assert run.clock[0, :, 0].tolist() == [3.0, 6.0]
    assert run.reduced[0, :, 0].tolist() == [6.5, 6.5]


def test_slower_ranks_are_never_faster() -> None:
    rng = random.Random(1)
    for seed in range(30):
        schedule, costs = random_case(seed, dyadic=False)
        slowdown = np.random.default_rng(seed).uniform(0.5, 1.5, (schedule.pp, 2, 2))
        slower = slowdown.copy()
        slower[rng.randrange(schedule.pp), rng.randrange(2), rng.randrange(2)] *= 1.5
        before = run_planes(schedule, costs, slowdown)
        after = run_planes(schedule, costs, slower)
        assert (after.clock >= before.clock).all()
        assert after.step_time >= before.step_time * (1 - 1e-12)


def test_a_compiled_graph_saves_compiling() -> None:
    schedule, costs = random_case(5)
    slowdown = np.full((schedule.pp, 2, 2), 1.125)
    compiled = run_planes(compile_schedule(schedule), costs, slowdown)
    assert compiled.step_time == run_planes(schedule, costs, slowdown).step_time


def test_a_compact_graph_is_expanded() -> None:
    schedule = build_schedule("naive", pp=3, num_microbatches=4)
    costs, slowdown = make_costs(3, 3, forward=1.0, backward=2.0), np.full((3, 1, 2), 1.5)
    assert step_time_with_slowdown(compile_repeated(schedule), costs, slowdown) == 3 * 4 * 3 * 1.5


@pytest.mark.parametrize(
    ("slowdown", "message"),
    [
        (
            np.ones((2, 1, 1)),
            r"slowdown has shape \(2, 1, 1\); it must be \(pp, dp, tp\) with pp=4",
        ),
        (np.ones((4, 2)), r"slowdown has shape \(4, 2\)"),
        (np.ones((4, 0, 1)), r"slowdown has shape \(4, 0, 1\)"),
        (np.full((4, 1, 1), -0.5), "slowdown has the value -0.5; a multiplier must be finite"),
        (np.full((4, 1, 1), np.nan), "slowdown has the value nan"),
    ],
)
def test_bad_slowdowns_are_refused(slowdown: Array, message: str) -> None:
    schedule = build_schedule("1f1b", pp=PP, num_microbatches=M)
    with pytest.raises(InputError, match=message):
        run_planes(schedule, layered_costs(), slowdown)


def test_costs_of_several_plans_are_refused() -> None:
    costs = layered_costs().take(np.array([0, 0]))
    with pytest.raises(InputError, match="costs of 2 plans given"):
        run_planes(build_schedule("1f1b", pp=PP, num_microbatches=M), costs, np.ones((PP, 1, 1)))
