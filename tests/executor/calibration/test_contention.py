"""How much longer an update takes when all ranks make one at once."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from executor.calibration.timing.losses import Losses, growth, mean_losses
from parsim.cluster.fields import MOST_CONTENTION


@pytest.mark.parametrize(
    ("alone", "together", "share"),
    [(10.0, 16.0, 0.6), (10.0, 9.5, 0.0), (1.0, 100.0, MOST_CONTENTION)],
)
def test_updates_beside_others_are_longer_by_a_share(
    alone: float, together: float, share: float
) -> None:
    assert growth(alone, together) == pytest.approx(share)


def test_what_is_lost_is_the_mean_of_several_moments() -> None:
    on_one_chiplet, on_two = Losses(1.0, 0.9, 0.7, 1.0), Losses(0.8, 0.7, 0.1, 0.6)
    assert mean_losses([on_one_chiplet, on_two]) == pytest.approx((0.9, 0.8, 0.4, 0.8))
    assert mean_losses([]) is None
