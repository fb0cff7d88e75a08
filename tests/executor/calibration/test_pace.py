"""A core that somebody outside of this machine slows down."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

from executor.calibration.timing.pace import DOUBT, Pace, at_pace, doubt, lost
from executor.calibration.timing.passes import PassTimer, Queue
from executor.measure.core_product import TRIES, CoreProduct
from executor.measure.device_state import DeviceMonitor

CPU = torch.device("cpu")


def pace_of(monkeypatch: pytest.MonkeyPatch, seconds: Iterator[float]) -> Pace:
    monkeypatch.setattr(CoreProduct, "_once", lambda _: next(seconds))
    return Pace(CPU)


def test_the_quickest_product_so_far_is_the_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    told = [9.0, 3.0, *[4.0] * (TRIES - 1), *[4.5] * TRIES, *[2.0] * TRIES, *[3.0] * TRIES]
    pace = pace_of(monkeypatch, iter(told))  # the first prepares the library
    assert pace.quickest is None
    assert [pace.now() for _ in range(4)] == [1.0, 1.5, 1.0, 1.5]
    assert pace.quickest == 2.0


def test_a_gpu_has_no_core_to_be_told_of() -> None:
    pace = Pace(torch.device("meta"))
    assert (pace.now(), pace.quickest) == (1.0, None)
    assert DeviceMonitor(torch.device("meta")).look().core_product is None


def test_a_run_looks_at_its_core_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter(range(1, 100))
    monkeypatch.setattr(CoreProduct, "_once", lambda _: float(next(moments)))
    monitor = DeviceMonitor(CPU)
    assert monitor.look().core_product == monitor.look().core_product == 2.0
    assert next(moments) == 1 + TRIES + 1
    monkeypatch.undo()
    assert 1e-6 < CoreProduct().seconds() < 1.0


def test_only_rounds_on_a_slow_core_are_corrected() -> None:
    assert at_pace([(3.0, 6.0), (1.1, 2.2)], [1.5, 1.1]) == [(2.0, 4.0), (1.1, 2.2)]
    assert lost([1.0, 1.1, 1.6]) == 0.0
    assert lost([1.0, 2.0, 2.0]) == pytest.approx(0.5)
    assert doubt([2.0]) == pytest.approx(DOUBT * math.log(2.0))
    assert doubt([1.1]) == 0.0


def test_a_slow_patch_does_not_make_a_layer_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two timings of a part, the second on a core at half of its speed."""
    monkeypatch.setattr(dist, "broadcast", lambda *_: None)
    monkeypatch.setattr(Queue, "share", 0.0)  # whatever else uses this machine
    slowness = [1.0]
    pace = pace_of(monkeypatch, iter(lambda: slowness[0], None))
    timer = PassTimer(CPU, pace, idle=False)
    monkeypatch.setattr(timer, "_once", lambda *_: (0.5 * slowness[0], 1.0 * slowness[0]))
    part, inputs = torch.nn.Identity(), torch.zeros(1)
    quiet = timer.times(part, inputs, None, 0.0)
    slowness[0] = 2.0
    slow = timer.times(part, inputs, None, 0.0)
    assert (slow.forward, slow.backward) == (quiet.forward, quiet.backward) == (0.5, 1.0)
    assert slow.scatter == pytest.approx((DOUBT * math.log(2.0),) * 2)
    assert quiet.scatter == (0.0, 0.0)
    assert timer.queued[1] == pytest.approx(0.5)
