from __future__ import annotations

from dataclasses import replace

import pytest

from parsim.cluster.reader import load_catalog
from parsim.cost.server_rates import near_seconds

SIZE = 1e9


@pytest.mark.parametrize(("loss", "size"), [(0.0, 2.0), (0.5, 2.5), (1.0, 3.0)])
def test_what_comes_the_other_way_takes_its_share(loss: float, size: float) -> None:
    """2 GB out and 1 GB in take the time of 2 GB and of the lost share of 1 GB."""
    system = replace(load_catalog().system("dgx-a100"), two_way_loss=loss)
    rate = system.intra.bandwidth * system.intra.efficiency
    assert near_seconds(system, 2.0 * SIZE, SIZE) == pytest.approx(size * SIZE / rate, rel=1e-6)


@pytest.mark.parametrize("loss", [0.0, 1.0])
def test_nothing_takes_no_time(loss: float) -> None:
    system = replace(load_catalog().system("dgx-a100"), two_way_loss=loss)
    assert near_seconds(system, 0.0, 0.0) == 0.0
