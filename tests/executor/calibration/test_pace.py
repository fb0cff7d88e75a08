"""A core that somebody outside of this machine slows down."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

from executor.calibration.timing.bench import Bench
from executor.calibration.timing.pace import DOUBT, TRIES, Pace, at_pace, doubt, lost
from executor.calibration.timing.passes import PassTimer


def pace_of(monkeypatch: pytest.MonkeyPatch, seconds: Iterator[float]) -> Pace:
    bench = Bench(torch.device("cpu"), "fp32")
    monkeypatch.setattr(bench, "elapsed", lambda work, inner: next(seconds))
    return Pace(bench)


def test_the_quickest_product_so_far_is_the_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    told = [3.0, *[4.0] * (TRIES - 1), *[4.5] * TRIES, *[2.0] * TRIES, *[3.0] * TRIES]
    pace = pace_of(monkeypatch, iter(told))
    assert [pace.now() for _ in range(4)] == [1.0, 1.5, 1.0, 1.5]


def test_only_rounds_on_a_slow_core_are_corrected() -> None:
    assert at_pace([(3.0, 6.0), (1.1, 2.2)], [1.5, 1.1]) == [(2.0, 4.0), (1.1, 2.2)]
    assert lost([1.0, 1.1, 1.6]) == 0.0
    assert lost([1.0, 2.0, 2.0]) == pytest.approx(0.5)
    assert doubt([2.0]) == pytest.approx(DOUBT * math.log(2.0))
    assert doubt([1.1]) == 0.0


def test_a_slow_patch_does_not_make_a_layer_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two timings of a part, the second on a core at half of its speed."""
    monkeypatch.setattr(dist, "broadcast", lambda *_: None)
    slowness = [1.0]
    pace = pace_of(monkeypatch, iter(lambda: slowness[0], None))
    timer = PassTimer(torch.device("cpu"), pace, idle=False)
    monkeypatch.setattr(timer, "_once", lambda *_: (0.5 * slowness[0], 1.0 * slowness[0]))
    part, inputs = torch.nn.Identity(), torch.zeros(1)
    quiet = timer.times(part, inputs, None, 0.0)
    slowness[0] = 2.0
    slow = timer.times(part, inputs, None, 0.0)
    assert (slow.forward, slow.backward) == (quiet.forward, quiet.backward) == (0.5, 1.0)
    assert slow.scatter == pytest.approx((DOUBT * math.log(2.0),) * 2)
    assert quiet.scatter == (0.0, 0.0)
    assert timer.queued[1] == pytest.approx(0.5)
