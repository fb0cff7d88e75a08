"""Tier B against closed forms; F, X: seconds of a forward and a backward of one micro-batch."""

from __future__ import annotations

import itertools
import random

import pytest

from parsim.cost.step.costs import StepCosts
from parsim.sim.recurrence.evaluate import bubble_fraction, pipeline
from parsim.sim.recurrence.maxplus import step_end
from parsim.sim.step.compiled_schedule import compiled_schedule
from parsim.strategy.synchronous import LATE
from tests.parsim.sim.cases import make_costs

F = 0.75
GRID = [(p, m) for p in (1, 2, 3, 4, 8, 16) for m in (1, 2, 4, 8, 24, 32)]


def makespan(name: str, pp: int, m: int, costs: StepCosts, v: int = 1) -> float:
    return float(pipeline(compiled_schedule(name, pp, m, v), costs).clock.max())


def even(stages: int, pp: int, forward: float, backward: float, hop: float = 0.0) -> StepCosts:
    return make_costs(stages, pp, forward=forward, backward=backward, hop=hop)


@pytest.mark.parametrize(("pp", "m"), GRID)
@pytest.mark.parametrize("backward", [F, 2 * F, 3 * F])
@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_bubble_of_gpipe_and_1f1b(name: str, backward: float, pp: int, m: int) -> None:
    idle = makespan(name, pp, m, even(pp, pp, F, backward)) - m * (F + backward)
    assert idle == (pp - 1) * (F + backward)


@pytest.mark.parametrize(("pp", "m"), GRID)
def test_naive_has_one_rank_busy_at_a_time(pp: int, m: int) -> None:
    assert makespan("naive", pp, m, even(pp, pp, F, 2 * F)) == pp * m * 3 * F


@pytest.mark.parametrize(("pp", "m"), [(p, m) for p, m in GRID if p > 1 and m % p == 0])
@pytest.mark.parametrize("v", [2, 3, 4])
def test_interleaving_divides_the_bubble_by_v(v: int, pp: int, m: int) -> None:
    # a chunk takes F/v and 2F/v; F is 3/4 x v so that the quotients stay dyadic
    forward = F * v
    costs = even(pp * v, pp, forward / v, 2 * forward / v)
    idle = makespan("interleaved_1f1b", pp, m, costs, v) - m * 3 * forward
    assert idle == (pp - 1) * 3 * forward / v


@pytest.mark.parametrize(("pp", "m"), [(p, m) for p, m in GRID if p > 1 and m % p == 0])
@pytest.mark.parametrize(
    ("name", "v"), [("naive", 1), ("gpipe", 1), ("1f1b", 1), ("interleaved_1f1b", 2)]
)
def test_bubble_fraction_is_over_the_whole_phase(name: str, v: int, pp: int, m: int) -> None:
    graph, costs = compiled_schedule(name, pp, m, v), even(pp * v, pp, F, 2 * F)
    fraction = (pp - 1) / pp if name == "naive" else (pp - 1) / (m * v + pp - 1)
    result = bubble_fraction(graph, costs, pipeline(graph, costs))[0]
    assert result == pytest.approx(fraction, rel=1e-12)
    assert result >= 0.0


LATENCIES = [
    (p, m_over_p, backward)
    for p in range(2, 17)
    for m_over_p in (1, 2, 3, 4, 5, 6, 8)
    for backward in (F, 2 * F, 3 * F)
]


def test_exposed_latency_of_1f1b() -> None:
    """A hop of c adds 2c[(p-1)m/p + p-2]: steady state waits for the round trip, too."""
    assert len(LATENCIES) == 315
    for (p, rounds, backward), share in zip(
        LATENCIES, itertools.cycle((0.001, 0.037, 0.11, 0.3)), strict=False
    ):
        m, c = p * rounds, share * F
        free = makespan("1f1b", p, m, even(p, p, F, backward))
        late = makespan("1f1b", p, m, even(p, p, F, backward, hop=c))
        assert late - free == pytest.approx(2 * c * ((p - 1) * rounds + p - 2), rel=1e-9)


@pytest.mark.parametrize(("pp", "m"), GRID)
@pytest.mark.parametrize("hop", [0.25 * F, 0.5 * F, 2 * F])
def test_gpipe_waits_for_latency_only_at_its_ends(hop: float, pp: int, m: int) -> None:
    free = makespan("gpipe", pp, m, even(pp, pp, F, 2 * F))
    late = makespan("gpipe", pp, m, even(pp, pp, F, 2 * F, hop))
    assert late - free == 2 * (pp - 1) * hop


@pytest.mark.parametrize(("pp", "m"), [(p, m) for p, m in GRID if p > 1])
def test_blocking_sends_of_gpipe_join_the_actions(pp: int, m: int) -> None:
    # every hop lengthens the sender's action: m - 1 more forwards and backwards of F + c and
    # 2F + c on the pacing stages, and each micro-batch crosses pp - 1 hops twice
    c = 0.25
    costs = make_costs(pp, pp, forward=F, backward=2 * F, hop=c, blocking=True)
    expected = (m - 1) * (3 * F + 2 * c) + pp * 3 * F + 2 * (pp - 1) * c
    assert makespan("gpipe", pp, m, costs) == expected


def test_uneven_stages_lie_between_their_bounds() -> None:
    """p = 8, m = 32, 20 % spread: T <= m max(F + X) + the others' F + X, by 2.1 % at most.

    From below: any stage works m times, and first and last wait for the stages before it.
    """
    rng = random.Random(7)
    for _ in range(200):
        forward = [rng.uniform(0.9, 1.1) for _ in range(8)]
        both = [3 * seconds for seconds in forward]
        time = makespan(
            "1f1b", 8, 32, make_costs(8, 8, forward=forward, backward=[2 * x for x in forward])
        )
        above = 31 * max(both) + sum(both)
        below = max(32 * both[s] + sum(both[:s]) for s in range(8))
        assert below * (1 - 1e-12) <= time <= above * (1 + 1e-12)
        assert time >= above / 1.021


@pytest.mark.parametrize("overlap", [True, False])
def test_time_of_buckets_after_the_last_backward(overlap: bool) -> None:
    """One stage, four buckets of c over a backward of W: ready at W/4, W/2, 3W/4 and W."""
    graph = compiled_schedule("1f1b", 1, 1, 1)
    for each in (0.125, 0.25, 0.5):
        costs = make_costs(
            1, 1, forward=1.0, backward=1.0, buckets=4, bucket_time=each, overlap=overlap
        )
        times = step_end(graph, costs, pipeline(graph, costs)).times
        end = float(times[LATE].ready[0, 0])
        hidden = max(2.0 + each, 1.25 + 4 * each)
        assert end == (hidden if overlap else 2.0 + 4 * each)
