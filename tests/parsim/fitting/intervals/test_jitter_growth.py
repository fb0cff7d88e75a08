"""Growth of steps with the number of devices: the line, the inversion, the plans it is made of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from parsim.cost.jitter import Jitter
from parsim.cost.order_statistics import later_than_of_node
from parsim.fitting.intervals import jitter_growth
from parsim.fitting.intervals.jitter_growth import (
    STILL,
    Point,
    growth,
    needed,
    published,
    replicas,
    weak_scaling,
)

SPREAD = replace(STILL, speed_spread=0.015)


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jitter_growth, "STEPS", 10)


def test_no_jitter_does_not_grow() -> None:
    points = replicas()[:3]
    assert growth(points, points[0], STILL) == pytest.approx(0.0, abs=1e-12)


def test_speeds_grow_as_the_slowest_of_n_does() -> None:
    """Largest of n normal draws: 1.42 sd of 8, 2.87 of 512; what is computed is most of a step."""
    points = replicas()
    assert [point.devices for point in points] == [8, 32, 128, 512, 3072]
    first, last = points[0].slowdown(SPREAD), points[3].slowdown(SPREAD)
    expected = np.exp(0.015 * 2.87) / np.exp(0.015 * 1.42) - 1
    assert 0.6 * expected < last / first - 1 < 1.2 * expected


def test_growth_is_the_line_through_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    def slowdown(point: Point, jitter: Jitter) -> float:
        return 1.1 * (1 + 0.01 * float(later_than_of_node(point.devices)))

    monkeypatch.setattr(Point, "slowdown", slowdown)
    points = replicas()
    assert growth(points, points[0], STILL) == pytest.approx(0.01)


def test_the_spread_is_found_between_simulated_ones() -> None:
    assert needed((0.01, 0.03), (0.002, 0.006), 0.004) == "2.0 %"
    assert needed((0.01, 0.03), (0.002, 0.006), 0.001) == "0.5 %"
    assert needed((0.01, 0.03), (0.002, 0.006), 0.007) == "above 3 %"


def test_the_published_plans_are_all_there() -> None:
    assert len(published()) == len(weak_scaling()) == 10
    assert [point.devices for point in weak_scaling()][::9] == [32, 3072]
