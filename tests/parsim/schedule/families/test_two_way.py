"""Schedules that go both ways: the stated bubbles of Chimera and DualPipe, and memory."""

from __future__ import annotations

import pytest

from parsim.plan.names import TWO_WAY as NAMED_TWO_WAY
from parsim.schedule import TWO_WAY, Action, Kind, Schedule, build_schedule
from parsim.schedule.check import check_schedule
from parsim.schedule.inflight import inflight_counts
from parsim.schedule.lowering import lower
from parsim.sim.schedules.timed import UnitTimes, unit_timeline

Times = tuple[float, float, float]
Unit = tuple[Action, ...]
"""Actions that begin and end together."""


def built(name: str, pp: int, m: int) -> Schedule:
    return build_schedule(name, pp=pp, num_microbatches=m, v=2 if name == "dualpipe_v" else 1)


def makespan(schedule: Schedule, times: Times) -> float:
    return unit_timeline(schedule, UnitTimes(*times)).end


def most_held(schedule: Schedule) -> int:
    return max(max(map(sum, counts)) for counts in inflight_counts(schedule))


def test_the_names_that_layers_share() -> None:
    assert frozenset(NAMED_TWO_WAY) == TWO_WAY
    assert all(built(name, 2, 4).copies == 2 for name in TWO_WAY)


def test_each_copy_reduces_its_gradients_behind_its_own_micro_batches() -> None:
    """Half of the micro-batches complete a stage's gradient."""
    for name in TWO_WAY:
        lowered = lower(built(name, 4, 8), reduce_grad=True)
        check_schedule(lowered)
        for row in lowered.ranks:
            reduced = {a.stage: i for i, a in enumerate(row) if a.kind == Kind.REDUCE_GRAD}
            last = {a.stage: i for i, a in enumerate(row) if a.kind in (Kind.B, Kind.W)}
            assert len(reduced) == 2
            assert all(last[stage] < index for stage, index in reduced.items())


# --------------------------------------------------------------------------------------- Chimera

PROVEN = {(4, 4): 16, (4, 8): 28, (8, 8): 36, (8, 16): 60}
"""(pp, m) to the shortest time of any order with pp micro-batches held, F = 1 and B = 2, which a
constraint solver (CP-SAT) has proven."""


@pytest.mark.parametrize(("pp", "m"), PROVEN)
def test_chimera_is_the_proven_optimum(pp: int, m: int) -> None:
    assert makespan(built("chimera", pp, m), (1, 1, 1)) == PROVEN[pp, m]


@pytest.mark.parametrize(("pp", "m"), [(4, 4), (4, 16), (6, 12), (8, 8), (8, 32), (16, 16)])
def test_stated_bubbles_of_chimera(pp: int, m: int) -> None:
    """(D - 2)/(3N/2 + D - 2) of the step where B = 2F, and (D - 2)/(2N + D - 2) where B = F."""
    schedule = built("chimera", pp, m)
    halves = build_schedule("chimera", pp=pp, num_microbatches=m, times=(2, 1, 1, 0, 1))
    twice, equal = makespan(schedule, (1, 1, 1)), makespan(halves, (2, 1, 1))
    assert 1 - 3 * m / twice == pytest.approx((pp - 2) / (1.5 * m + pp - 2))
    assert 1 - 4 * m / equal == pytest.approx((pp - 2) / (2 * m + pp - 2))
    assert most_held(schedule) <= pp


# -------------------------------------------------------------------------------------- DualPipe

SIZES = [("dualpipe", 4, 8), ("dualpipe", 8, 32), ("dualpipe_v", 2, 4), ("dualpipe_v", 6, 14)]


def ranks_of_a_v(schedule: Schedule) -> int:
    return schedule.pp // schedule.copies


@pytest.mark.parametrize(("name", "pp", "m"), SIZES)
@pytest.mark.parametrize("times", [(1, 1, 1), (4, 4, 3), (2, 2, 1)])
def test_idle_time_one_behind_the_other(name: str, pp: int, m: int, times: Times) -> None:
    """(ranks - 1)(F + I - W), of chunks with DualPipeV, for F = I >= W."""
    schedule, (f, i, w) = built(name, pp, m), times
    share = 0.5 if name == "dualpipe_v" else 1.0
    idle = makespan(schedule, times) - m * sum(times)
    assert idle == pytest.approx(share * (ranks_of_a_v(schedule) - 1) * (f + i - w))


@pytest.mark.parametrize(("name", "pp", "m"), SIZES)
@pytest.mark.parametrize("times", [(1, 1, 1), (4, 4, 3)])
def test_stated_bubble_of_pairs_that_end_together(name: str, pp: int, m: int, times: Times) -> None:
    """(PP/2 - 1)(F&B + B - 3W) with F&B = F + B: the README of deepseek-ai/DualPipe."""
    schedule, (f, i, w) = built(name, pp, m), times
    backward = i + w
    busy = m * (f + backward) * (2 if name == "dualpipe_v" else 1)
    stated = (ranks_of_a_v(schedule) - 1) * (f + backward + backward - 3 * w)
    assert in_pairs(schedule, times) - busy == pytest.approx(stated)


def test_memory_of_dualpipe() -> None:
    for pp in (2, 4, 8):
        assert most_held(built("dualpipe", pp, 4 * pp)) == pp + 1
        assert most_held(built("dualpipe_v", pp, 4 * pp)) == 2 * pp + 1


def in_pairs(schedule: Schedule, times: Times) -> float:
    """Makespan where each F and the B behind it are one, but for the innermost ranks' first."""
    units = [_units(schedule, rank) for rank in range(schedule.pp)]
    forward, inputs, weights = times
    lengths = {Kind.F: forward, Kind.B: inputs + weights, Kind.I: inputs, Kind.W: weights}
    ends: dict[tuple[int, bool, int], float] = {}
    clock = [0.0] * schedule.pp
    while any(units):
        for rank, row in enumerate(units):
            while row:
                needs = [need for a in row[0] for need in _needs(schedule, a)]
                if not all(need in ends for need in needs):
                    break
                unit = row.pop(0)
                clock[rank] = max([clock[rank], *(ends[need] for need in needs)])
                clock[rank] += sum(lengths[a.kind] for a in unit)
                for stage, kind, mb in unit:
                    if kind != Kind.W:
                        ends[stage, kind == Kind.F, mb] = clock[rank]
    return max(clock)


def _units(schedule: Schedule, rank: int) -> list[Unit]:
    row = list(schedule.ranks[rank])
    innermost = schedule.copies == 2 and rank in (schedule.pp // 2 - 1, schedule.pp // 2)
    apart = innermost or (schedule.copies == 1 and rank == schedule.pp - 1)
    units: list[Unit] = []
    while row:
        pair = len(row) > 1 and (row[0].kind, row[1].kind) == (Kind.F, Kind.B)
        if pair and apart:
            units += [(row.pop(0),), (row.pop(0),)]
            apart = False
        else:
            units.append((row.pop(0), row.pop(0)) if pair else (row.pop(0),))
    return units


def _needs(schedule: Schedule, action: Action) -> list[tuple[int, bool, int]]:
    stage, kind, mb = action
    if kind == Kind.F:
        return [] if schedule.is_first(stage) else [(stage - 1, True, mb)]
    if kind == Kind.W:
        return []
    return [(stage, True, mb)] if schedule.is_last(stage) else [(stage + 1, False, mb)]
