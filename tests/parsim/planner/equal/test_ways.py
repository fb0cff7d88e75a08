"""The longest ways through schedules: counted by hand, and never longer than the schedule."""

from __future__ import annotations

import numpy as np
import pytest

from parsim.arrays import Array
from parsim.plan.names import SCHEDULE_NAMES
from parsim.planner.equal.ways import longest_ways
from parsim.schedule import CHUNKED, V_SHAPED, Kind, Schedule, build_schedule
from parsim.sim.recurrence.maxplus import ClassTimes, run
from parsim.sim.step.compiled_schedule import compile_repeated, compile_schedule


def test_of_1f1b_by_hand() -> None:
    """Three micro-batches on two ranks: 4 forwards and as many backwards, whatever the ratio.

    The last stage has all its three forwards and backwards on the way, between two messages.
    """
    compiled = compile_schedule(build_schedule("1f1b", pp=2, num_microbatches=3))
    assert [4.0, 4.0, 4.0, 3.0, 2.0] in longest_ways(compiled, (1, 1)).tolist()
    assert (longest_ways(compiled, (1, 1))[:, :3] == 4.0).all()


def test_sends_that_block_count_on_every_way() -> None:
    """A way on rank 0 alone has them as well: each forward sends, and no backward."""
    compiled = compile_schedule(build_schedule("gpipe", pp=2, num_microbatches=2))
    ways = longest_ways(compiled, (3, 1), blocking=True)
    assert [3.0 * 2 + 1, 1 + 3.0 * 2, 7.0, 1.0, 3.0] in ways.tolist()


def test_a_stage_counts_its_layers() -> None:
    """GPipe, the second stage thrice the first: 1 + 2 x 3 layers forward, 2 x 3 + 1 backward."""
    compiled = compile_schedule(build_schedule("gpipe", pp=2, num_microbatches=2))
    assert longest_ways(compiled, (1, 3)).tolist() == [[7.0, 7.0, 7.0, 2.0, 2.0]]


RATIOS = np.array([0.3, 0.5, 1.0, 1.7, 2.0, 3.0, 7.0])
"""I over forward; W is as long as forward, but half of it where I is half."""

EXACT = [1, 2, 4, 5]
"""Places of the ratios that ways are looked for with."""


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("message", [0.0, 0.1, 2.0])
@pytest.mark.parametrize("name", SCHEDULE_NAMES)
def test_no_schedule_ends_before_its_ways(name: str, message: float, blocking: bool) -> None:
    """With any seconds of actions and messages; where the ratios are one of theirs, with equality.

    A head of half a layer's forward and backward is on the last stage.
    """
    v = 4 if name in CHUNKED else 2 if name in V_SHAPED else 1
    for pp, m in ((2, 4), (4, 8), (4, 12)):
        schedule = build_schedule(name, pp=pp, num_microbatches=m, v=v)
        ways = longest_ways(compile_repeated(schedule), (2,) * schedule.depth, blocking=blocking)
        if name == "naive":
            assert not len(ways)
            continue
        for head in (0.0, 0.5):
            ends = _ends(schedule, message, head, blocking=blocking)
            inner, weight = RATIOS, np.where(RATIOS == 0.5, 0.5, 1.0)
            head_seconds = head * (1.0 + inner + weight)
            parts = [np.ones_like(inner), inner, weight, head_seconds, message + 0.0 * inner]
            bound = (ways @ np.stack(parts)).max(axis=0)
            assert (bound <= ends * (1.0 + 1e-12)).all()
            if not message and not head:
                assert bound[EXACT] == pytest.approx(ends[EXACT])


def _ends(schedule: Schedule, message: float, head: float, *, blocking: bool) -> Array:
    """Ends of a schedule of two layers a stage for each ratio, (R,)."""
    inner, weight = RATIOS, np.where(RATIOS == 0.5, 0.5, 1.0)
    stages = np.full((schedule.num_stages, 1), 2.0)
    stages[schedule.depth - 1 :: schedule.depth] += head
    one_each = np.ones_like(inner)
    lengths = {Kind.F: one_each, Kind.B: inner + weight, Kind.I: inner, Kind.W: weight}
    seconds = {kind: stages * length for kind, length in lengths.items()}
    hops = np.full((schedule.num_stages - 1, len(inner)), message)
    times = ClassTimes.on(schedule, seconds, hops)
    compiled = compile_repeated(schedule)
    return np.asarray(run(compiled, times.blocking() if blocking else times).clock.max(axis=0))
