"""What ranks lose to one another, of several moments."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from executor.calibration.timing.losses import Losses, mean_losses
from parsim.cluster.fields import LIMITS


def test_what_is_lost_is_the_mean_of_several_moments() -> None:
    on_one_chiplet, on_two = Losses(1.0, 0.9, 0.7, 1.0), Losses(0.8, 0.7, 0.1, 0.6)
    assert mean_losses([on_one_chiplet, on_two]) == pytest.approx((0.9, 0.8, 0.4, 0.8))
    assert mean_losses([]) is None


def test_only_the_mean_is_kept_within_what_is_possible() -> None:
    above, below = Losses(1.2, 0.4, 20.0, 1.4), Losses(0.8, -0.6, 1.0, 1.0)
    assert mean_losses([above, below]) == pytest.approx((1.0, 0.0, LIMITS["slowing"].high, 1.2))
    assert mean_losses([above]) == pytest.approx((1.0, 0.4, LIMITS["slowing"].high, 1.4))
