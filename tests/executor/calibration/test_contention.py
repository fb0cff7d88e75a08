"""How much longer an update takes when all ranks make one at once."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from executor.calibration.timing.rank_spread import growth
from parsim.cluster.fields import MOST_CONTENTION


@pytest.mark.parametrize(
    ("alone", "together", "share"),
    [(10.0, 16.0, 0.6), (10.0, 9.5, 0.0), (1.0, 100.0, MOST_CONTENTION)],
)
def test_updates_beside_others_are_longer_by_a_share(
    alone: float, together: float, share: float
) -> None:
    assert growth(alone, together) == pytest.approx(share)
