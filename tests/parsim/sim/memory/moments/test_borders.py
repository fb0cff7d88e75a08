"""Messages between pipeline ranks: who sends to whom, and what is on its way."""

from __future__ import annotations

import numpy as np

from parsim.schedule import build_schedule
from parsim.sim.memory.moments.borders import Borders

SENT = np.array([[10.0], [20.0], [30.0], [40.0]])
"""Bytes that each of four stages sends on; the last one's are the model's output."""


def test_neighbours_on_one_rank_send_nothing() -> None:
    """In a V of two ranks stages 1 and 2 are on rank 1."""
    schedule = build_schedule("zb_v", pp=2, num_microbatches=4, v=2)
    outer = Borders.of(schedule, SENT, [0, 3])
    inner = Borders.of(schedule, SENT, [1, 2])
    assert (outer.inputs[:, 0].tolist(), outer.outputs[:, 0].tolist()) == ([0, 30], [10, 0])
    assert (inner.inputs[:, 0].tolist(), inner.outputs[:, 0].tolist()) == ([10, 0], [0, 30])


def test_one_message_passes_each_border_however_many_there_are() -> None:
    for microbatches in (4, 32):
        schedule = build_schedule("1f1b", pp=4, num_microbatches=microbatches)
        passing = [Borders.of(schedule, SENT, [stage]).passing[0] for stage in range(4)]
        assert passing == [10.0, 30.0, 50.0, 30.0]
