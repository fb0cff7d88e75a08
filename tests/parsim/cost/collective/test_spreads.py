"""How sure a number is, by what it rests on."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.cluster.hardware import Curve, System
from parsim.cost.collective.collectives import collective_time
from parsim.cost.collective.group_bandwidth import one_group
from parsim.cost.collective.kinds import CollectiveKind
from parsim.cost.collective.measured_curve import collective_spread
from tests.parsim.cost.collective.on_systems import group, names, sizes, system


@given(name=names, size=sizes, ranks=st.sampled_from([2, 4, 8, 16]))
def test_a_number_is_no_surer_without_its_measurement(name: str, size: float, ranks: int) -> None:
    on, where = system(name), group(name, ranks)
    known = collective_spread(on, "all_reduce", size, where)[0]
    unknown = collective_spread(replace(on, curves=()), "all_reduce", size, where)[0]
    assert 0.0 < known <= unknown
    smaller = collective_spread(on, "all_reduce", size / 64, where)[0]
    assert smaller >= known


def test_spread_by_what_a_number_rests_on() -> None:
    on, large = system("dgx-h100"), 64 * 2.0**20

    def spread(kind: CollectiveKind, ranks: int) -> float:
        return float(collective_spread(on, kind, large, group("dgx-h100", ranks))[0])

    assert spread("all_reduce", 8) < spread("all_gather", 8) < spread("all_gather", 16)


def test_a_calibration_is_sure_of_the_groups_that_it_measured() -> None:
    bare, large = replace(system("dgx-h100"), curves=()), 64 * 2.0**20
    pairs = replace(bare, residuals={"all_gather": ((1e6, 1.1),), "send_recv": ((1e6, 0.9),)})
    points = ((1e6, 2.0, 1.1), (1e6, 4.0, 1.1))
    mine = replace(bare, residuals={"all_gather": points})

    def sure(on: System, kind: CollectiveKind | Literal["send_recv"], ranks: int) -> bool:
        spread = (
            collective_spread(points, kind, large, group("dgx-h100", ranks))
            for points in (on, bare)
        )
        return bool(next(spread) < next(spread))

    assert [sure(pairs, "all_gather", n) for n in (2, 4, 8, 16)] == [True, False, False, False]
    assert [sure(mine, "all_gather", n) for n in (2, 4, 8, 16)] == [True, True, False, False]
    assert [sure(pairs, "send_recv", n) for n in (2, 8, 16)] == [True, True, False]


def test_what_was_measured_in_a_node_corrects_groups_of_that_size_in_a_node() -> None:
    bare = replace(system("dgx-h100"), curves=())
    mine = replace(bare, residuals={"all_reduce": ((1e6, 2.0, 2.0), (1e6, 8.0, 0.5))})

    def factor(ranks: int) -> float:
        where = group("dgx-h100", ranks)
        times = [float(collective_time(on, "all_reduce", 1e6, where)[0]) for on in (mine, bare)]
        return times[0] / times[1]

    assert factor(2) == pytest.approx(2.0, rel=1e-3)
    assert factor(8) == pytest.approx(0.5, rel=1e-3)
    assert 0.5 < factor(4) < 2.0
    assert factor(16) == 1.0  # two nodes, which nobody measured


def test_gloo_takes_a_measured_curve_and_the_nearest_one() -> None:
    on = replace(system("cpu"), devices_per_node=8)

    def curve(ranks: int, latency: float, rate: float) -> Curve:
        return Curve(
            collective="all_reduce",
            ranks=ranks,
            nodes=1,
            latency=latency,
            bandwidth=rate,
            ramp=1e-4,
            link=on.intra.bandwidth,
            node_bandwidth=None,
            least=4096.0,
            most=1e8,
            source="a test",
        )

    curves = (curve(2, 1e-4, 2e9), curve(4, 3e-4, 1e9))
    mine = replace(on, curves=curves)

    def took(ranks: int, size: float) -> float:
        seconds = collective_time(mine, "all_reduce", size, one_group(mine, ranks))[0]
        return float(seconds) - mine.call_overhead - (ranks - 1) * mine.call_overhead_per_rank

    for ranks, latency, rate in ((2, 1e-4, 2e9), (4, 3e-4, 1e9)):
        expected = latency + 2.0**20 / rate + 1e-4
        assert took(ranks, 2.0**20) == pytest.approx(expected, rel=1e-9)
    # a ring of 8 sends 7/8 where one of 4 sends 3/4; latency and ramp as of 4
    assert took(8, 2.0**30) == pytest.approx(3e-4 + 7 / 6 * 2.0**30 / 1e9 + 32e-4, rel=1e-9)
    plain = replace(on, curves=())
    where = one_group(on, 4)
    assert collective_time(mine, "all_gather", 1e6, where) == collective_time(
        plain, "all_gather", 1e6, where
    )
