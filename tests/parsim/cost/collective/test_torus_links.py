"""Shares of a torus's links that groups have: axes whole, lines of them, and every so many."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from parsim.cluster.reader import load_catalog
from parsim.cost.collective.collectives import collective_time, p2p_time
from parsim.cost.collective.group_bandwidth import groups, one_group
from parsim.cost.collective.mesh_links import members_share
from parsim.cost.collective.mesh_messages import best_share, pair_share
from parsim.cost.collective.torus_links import axis_links

POD = load_catalog().system("tpu-v5e-slice")  # 16 x 16
CUBE = load_catalog().system("tpu-v5p-slice")  # 4 x 4 x 4


@pytest.mark.parametrize(
    ("places", "size", "links"),
    [
        ([3], 8, 0.0),
        (list(range(8)), 8, 2.0),
        ([2, 3, 4], 8, 1.0),
        ([0, 2, 4, 6], 8, 1.0),  # two rings interleave on the axis's links
        ([0, 4], 8, 0.5),
        ([0, 1], 2, 2.0),  # both links lead to the one other device
    ],
)
def test_links_along_one_axis(places: list[int], size: int, links: float) -> None:
    assert axis_links(places, size) == links


def test_groups_of_a_pod() -> None:
    assert members_share(POD, range(256)) == (1.0, 1.0)
    assert members_share(POD, range(16))[0] == 2 / 4  # a row
    assert members_share(POD, range(0, 256, 16))[0] == 2 / 4  # a column
    assert members_share(POD, range(4))[0] == 1 / 4
    # every fourth of a row, which three other groups share, and whole columns
    assert members_share(POD, range(0, 256, 4))[0] == (2 / 4 + 2) / 4


def test_groups_of_a_cube() -> None:
    assert members_share(CUBE, range(64))[0] == 1.0
    assert members_share(CUBE, range(4))[0] == 2 / 6
    assert members_share(CUBE, range(8))[0] == (2 + 1) / 6
    assert members_share(CUBE, range(16))[0] == 4 / 6


def test_a_message_has_one_link() -> None:
    assert pair_share(POD, 0, 1) == best_share(POD) == 1 / 4
    assert pair_share(POD, 0, 256) == 1.0  # to another slice: over its interfaces
    size = np.array([2.0**30])
    alone, link = (
        p2p_time(POD, size, crosses=False, sharing=1.0, share=share) for share in (1.0, 1 / 4)
    )
    assert float((link / alone)[0]) == pytest.approx(4.0, rel=0.01)


def test_a_gather_of_a_row_takes_its_links() -> None:
    size = np.array([2.0**30])
    row = float(collective_time(POD, "all_gather", size, one_group(POD, 16))[0])
    assert row == pytest.approx(15 / 16 * 2**30 / (100e9 * 0.8), rel=0.01)
    column = groups(
        POD, size=np.array([16]), stride=np.array([16]), world=np.array([256], dtype=np.int64)
    )
    assert float(collective_time(POD, "all_gather", size, column)[0]) == pytest.approx(row)


def test_a_switch_leaves_every_group_all_links() -> None:
    switched = replace(POD, intra=replace(POD.intra, torus=0))
    assert members_share(switched, range(4)) == (1.0, 1.0)
    assert pair_share(switched, 0, 1) == best_share(switched) == 1.0
