"""Messages between pipeline ranks: buffers for the whole run, and what a step has sent so far."""

from __future__ import annotations

import numpy as np

from parsim.schedule import build_schedule
from parsim.sim.memory.borders import Borders
from parsim.sim.memory.moments import moments

SENT = np.array([[10.0], [10.0], [10.0], [10.0]])
"""Bytes that each of four stages sends on; the last one's are the model's output."""


def test_neighbours_on_one_rank_send_nothing() -> None:
    """In a V of two ranks stages 1 and 2 are on rank 1."""
    schedule = build_schedule("zb_v", pp=2, num_microbatches=4, v=2)
    outer = Borders.of(schedule, SENT, [0, 3])
    inner = Borders.of(schedule, SENT, [1, 2])
    assert (outer.inputs[:, 0].tolist(), outer.outputs[:, 0].tolist()) == ([0, 10], [10, 0])
    assert (inner.inputs[:, 0].tolist(), inner.outputs[:, 0].tolist()) == ([10, 0], [0, 10])
    assert inner.received(4).tolist() == [80.0]


def test_what_was_sent_grows_with_each_pass() -> None:
    """1F1B of 4 micro-batches on two ranks: in the end all outputs or gradients are sent."""
    schedule = build_schedule("1f1b", pp=2, num_microbatches=4)
    every = np.array([True, True])
    borders = Borders.of(schedule, SENT[:2], [0])
    ahead = moments(schedule, 0, every)
    assert max(borders.sent(moment)[0] for moment in ahead) == 40.0
    behind = Borders.of(schedule, SENT[:2], [1])
    last = [moment for moment in moments(schedule, 1, every) if moment.what == "reduce"]
    assert [behind.sent(moment)[0] for moment in last] == [40.0]
    assert all(moment.forwards == (4,) for moment in last)
