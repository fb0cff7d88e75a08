"""Both tiers of a strategy's program held against each other, task by task."""

from __future__ import annotations

import numpy as np
import pytest

from parsim.sim.data_parallel.families.priced import Priced
from parsim.sim.program import by_recurrence
from parsim.sim.rounds.run import run_rounds


def assert_tiers_agree(made: Priced) -> None:
    """The recurrence has the events' start and end of every task on every rank."""
    walked = by_recurrence(made.task_program)
    run = run_rounds(made.program, made.task_program.prices, keep=True)
    for number, task in enumerate(made.program.tasks):
        shape, times = (len(task.ranks), 1), walked.times[task.name]
        starts, ends = (np.broadcast_to(part, shape)[:, 0] for part in (times.start, times.end))
        for row, rank in enumerate(task.ranks):
            start, end = run.times[number, rank, 0]
            assert ends[row] == pytest.approx(end, rel=1e-12), task.name
            assert starts[row] == pytest.approx(start, rel=1e-12, abs=1e-18), task.name
