"""Collectives by kind and size: conventions of nccl-tests, monotone, intervals, placement."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.cluster.reader import load_catalog
from parsim.errors import CatalogError, PlanError
from parsim.sim.benchmark.collective_sweep import (
    COLLECTIVES,
    Collective,
    able_kinds,
    bus_share,
    sweep,
)
from parsim.sim.benchmark.group_layout import axis_layout, spread_layout
from parsim.units import MIB

SIZES = tuple(8 << i for i in range(31))
SYSTEMS = load_catalog().systems


@pytest.mark.parametrize(
    ("kind", "factor"),
    [
        ("all_reduce", 2 * 15 / 16),
        ("all_gather", 15 / 16),
        ("reduce_scatter", 15 / 16),
        ("all_to_all", 15 / 16),
        ("broadcast", 1.0),
        ("reduce", 1.0),
        ("send_recv", 1.0),
    ],
)
def test_bandwidths_are_those_of_nccl_tests(kind: Collective, factor: float) -> None:
    (row,) = sweep(spread_layout(SYSTEMS["dgx-h100"], 2), [kind], [MIB]).rows
    assert row.algbw == pytest.approx(MIB / row.seconds)
    assert row.busbw == pytest.approx(row.algbw * factor)
    assert bus_share(kind, 16) == pytest.approx(factor)


@pytest.mark.parametrize("system", SYSTEMS)
def test_more_bytes_take_longer(system: str) -> None:
    nodes = 1 if SYSTEMS[system].devices_per_node > 1 else 2
    result = sweep(spread_layout(SYSTEMS[system], nodes), COLLECTIVES, SIZES)
    for kind in COLLECTIVES:
        times = [row.seconds for row in result.of(kind)]
        assert times == sorted(times)
        assert times[0] > 0


def test_the_interval_holds_the_time_and_narrows() -> None:
    result = sweep(spread_layout(SYSTEMS["dgx-a100"], 1), ["all_reduce"], SIZES)
    ratios = []
    for row in result.rows:
        low, high = row.interval
        assert low < row.seconds < high
        assert low * high == pytest.approx(row.seconds**2)
        ratios.append(round(high / low, 9))
    assert ratios == sorted(ratios, reverse=True)


@pytest.mark.parametrize(
    ("system", "nodes", "algorithm", "size", "busbw"),
    [
        ("dgx-a100", 1, None, 4 << 30, 232),
        ("dgx-h100", 1, "ring", 4 << 30, 367),
        ("dgx-h100", 1, None, 8 << 30, 480),
        ("dgx-a100", 2, None, 8 << 30, 192),
        ("dgx-h100", 4, "ring", 8 << 30, 366),
        ("dgx-h100", 2, None, 8 << 30, 470),
        ("hgx-h200", 1, None, 8 << 30, 475),
    ],
)
def test_measured_anchors(
    system: str, nodes: int, algorithm: str | None, size: int, busbw: float
) -> None:
    """Public figures, reports/collectives.md and NCCL's issues, within 10 %."""
    layout = spread_layout(SYSTEMS[system], nodes)
    (row,) = sweep(layout, ["all_reduce"], [size], algorithm=algorithm).rows  # type: ignore[arg-type]
    assert row.busbw / 1e9 == pytest.approx(busbw, rel=0.1)


def test_a_forced_algorithm_is_no_faster_than_the_best() -> None:
    layout = spread_layout(SYSTEMS["dgx-h100"], 1)
    free = sweep(layout, ["all_reduce"], [1 << 30]).rows[0]
    for algorithm in ("ring", "tree", "nvls"):
        (row,) = sweep(layout, ["all_reduce"], [1 << 30], algorithm=algorithm).rows
        assert row.algorithm == algorithm
        assert row.seconds >= free.seconds


def test_what_a_forced_algorithm_can_do() -> None:
    layout = spread_layout(SYSTEMS["dgx-h100"], 1)
    assert able_kinds(layout, "tree", None) == ("all_reduce",)
    assert able_kinds(layout, None, "LL") == COLLECTIVES[:5]
    assert able_kinds(layout, None, None) == COLLECTIVES
    with pytest.raises(PlanError, match="allowed: ring, tree, nvls"):
        able_kinds(layout, "collnet", None)


@given(nodes=st.integers(1, 5), here=st.integers(1, 8), at_once=st.integers(1, 5))
def test_ranks_are_spread_equally(nodes: int, here: int, at_once: int) -> None:
    if nodes * here < 2:
        return
    layout = spread_layout(SYSTEMS["dgx-a100"], nodes, nodes * here, at_once)
    assert len(layout.groups) == at_once
    for group in layout.groups:
        assert len(set(group)) == nodes * here
        assert [rank // 8 for rank in group] == [node for node in range(nodes) for _ in range(here)]
    assert layout.per_device == -(-at_once * here // 8)
    where = layout.alone
    assert (where.size[0], where.per_node[0], where.nodes[0]) == (nodes * here, here, nodes)


def test_the_last_axis_communicates() -> None:
    layout = axis_layout(SYSTEMS["dgx-a100"], 2, {"tp": 8, "dp": 2})
    assert layout.groups == tuple((base, base + 8) for base in range(8))
    assert layout.per_device == 1


def test_ranks_that_do_not_fit() -> None:
    system = SYSTEMS["dgx-a100"]
    for nodes, ranks, message in ((1, 9, "more than the 8"), (2, 3, "equally"), (1, 1, "nothing")):
        with pytest.raises(PlanError, match=message):
            spread_layout(system, nodes, ranks)
    with pytest.raises(CatalogError, match="no network"):
        spread_layout(SYSTEMS["cpu"], 2)
    with pytest.raises(PlanError, match="16 ranks, more than the 8"):
        axis_layout(system, 1, {"tp": 8, "dp": 2})
