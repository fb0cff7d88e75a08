"""The longest ways through schedules: counted by hand, and never longer than the schedule."""

from __future__ import annotations

import numpy as np
import pytest

from parsim.plan.names import SCHEDULE_NAMES, SPLIT
from parsim.planner.equal.ways import longest_ways
from parsim.schedule import CHUNKED, V_SHAPED, Kind, build_schedule
from parsim.sim.recurrence.maxplus import ClassTimes, run
from parsim.sim.step.compiled_schedule import compile_repeated, compile_schedule


def test_of_1f1b_by_hand() -> None:
    """Three micro-batches on two ranks: 4 forwards and as many backwards, whatever the ratio."""
    compiled = compile_schedule(build_schedule("1f1b", pp=2, num_microbatches=3))
    assert longest_ways(compiled, (1, 1)).tolist() == [[4.0, 4.0]]


def test_a_stage_counts_its_layers() -> None:
    """GPipe, the second stage thrice the first: 1 + 2 x 3 layers forward, 2 x 3 + 1 backward."""
    compiled = compile_schedule(build_schedule("gpipe", pp=2, num_microbatches=2))
    assert longest_ways(compiled, (1, 3)).tolist() == [[7.0, 7.0]]


@pytest.mark.parametrize("name", SCHEDULE_NAMES)
def test_no_schedule_ends_before_its_ways(name: str) -> None:
    """With any seconds of forward and backward; where a ratio is one of theirs, with equality."""
    v = 4 if name in CHUNKED else 2 if name in V_SHAPED else 1
    for pp, m in ((2, 4), (4, 8), (4, 12)):
        schedule = build_schedule(name, pp=pp, num_microbatches=m, v=v)
        compiled = compile_repeated(schedule)
        ways = longest_ways(compiled, (2,) * schedule.depth)
        if name in SPLIT or name == "naive":
            assert not len(ways)
            continue
        ratios = np.array([0.3, 1.0, 1.7, 2.0, 2.2, 3.0, 7.0])
        stages = np.full((schedule.num_stages, 1), 2.0)
        seconds = {Kind.F: stages + 0.0 * ratios, Kind.B: stages * ratios}
        times = ClassTimes.on(schedule, seconds, np.zeros((schedule.num_stages - 1, len(ratios))))
        ends = run(compiled, times).clock.max(axis=0)
        bound = (ways[:, :1] + ways[:, 1:] * ratios).max(axis=0)
        assert (bound <= ends * (1.0 + 1e-12)).all()
        assert bound[[1, 3, 5]] == pytest.approx(ends[[1, 3, 5]])
