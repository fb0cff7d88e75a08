"""Small programs for tests of rounds: workers with a server that they queue at, or without one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from parsim.arrays import Array
from parsim.strategy.program import StepProgram
from parsim.strategy.task import Gate, Meeting, Queue, Task, Waits


def server(workers: int, rounds: int, gate: Gate | None = None) -> StepProgram:
    """Each worker copies the weights, computes, and has its update applied by one server."""
    ranks = tuple(range(workers))
    return StepProgram(
        tasks=(
            Task(name="pull", kind="PULL", ranks=ranks, waits=Waits.RANK, gate=gate, reads=True),
            Task(name="F", kind="F", ranks=ranks, price="compute", on_device=True),
            Task(name="update", kind="OPTIMIZER", ranks=ranks, writes=True,
                 queues=(Queue(rows=("server",), price="service"),)),
        ),
        ranks=workers,
        rounds=rounds,
        steps=rounds,
    )  # fmt: skip


def prices(compute: Sequence[float] | float, service: float = 0.0) -> dict[str, Array]:
    """Seconds of the programs above as columns of one class."""
    return {
        "compute": np.atleast_1d(np.array(compute))[:, None],
        "service": np.array([[service]]),
    }


def averaged(workers: int, rounds: int, quorum: int = 0) -> StepProgram:
    """Workers that meet at the end of every round, or as soon as so many have come."""
    ranks = tuple(range(workers))
    return StepProgram(
        tasks=(
            Task(name="F", kind="F", ranks=ranks, price="compute", on_device=True),
            Task(name="meet", kind="AVERAGE", ranks=ranks, meets=Meeting.STAGES, quorum=quorum),
        ),
        ranks=workers,
        rounds=rounds,
        steps=rounds,
    )
