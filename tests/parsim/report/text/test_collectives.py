"""Tables of collectives as nccl-tests prints them: golden text of rows made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import RenderableType

from parsim.cluster.reader import load_catalog
from parsim.report.text.collectives import (
    concurrent_view,
    rate_text,
    size_text,
    sweep_view,
    time_text,
)
from parsim.report.text.tables import console
from parsim.sim.benchmark.collective_sweep import Row, Sweep
from parsim.sim.benchmark.concurrent import Concurrent, ConcurrentRow, Shared
from parsim.sim.benchmark.group_layout import spread_layout
from tests.commands import ROOT

GOLDEN = ROOT / "tests" / "golden" / "collectives.txt"
SMALL = Row(
    collective="all_reduce",
    size=1024,
    algorithm="tree",
    protocol="LL",
    seconds=92e-6,
    spread=0.57,
    bus_share=15 / 8,
)
LARGE = replace(
    SMALL,
    size=1 << 30,
    algorithm="nvls_tree",
    protocol="Simple",
    seconds=4.7e-3,
    spread=0.05,
    measured=4.8e-3,
    measured_mad=0.024e-3,
)
SENT = replace(SMALL, collective="send_recv", size=3 << 10, algorithm="p2p", bus_share=1.0)


def printed(*views: RenderableType) -> list[str]:
    screen = console()
    with screen.capture() as caught:
        for view in views:
            screen.print(view)
    return [line.rstrip() for line in caught.get().splitlines()]


def test_golden() -> None:
    layout = spread_layout(load_catalog().systems["dgx-h100"], 2, None, 2)
    sweep = Sweep(layout=layout, rows=(SMALL, LARGE, SENT))
    nic = Shared("nic:0.0->leaf:0", "nic", 2, 8.1e-3)
    rows = (
        ConcurrentRow(alone=SMALL, together=92e-6, shared=nic),
        ConcurrentRow(
            alone=LARGE, together=9.1e-3, shared=nic, measured_together=9.6e-3, together_mad=0.48e-3
        ),
        ConcurrentRow(alone=SENT, together=92e-6, shared=None),
    )
    told = printed(sweep_view(sweep), concurrent_view(Concurrent(layout=layout, rows=rows)))
    assert told == GOLDEN.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (8, "8 B"),
        (1000, "1000 B"),
        (1024, "1 KiB"),
        (1536, "1536 B"),
        (3 << 20, "3 MiB"),
        (1 << 33, "8 GiB"),
    ],
)
def test_sizes_are_exact(size: int, text: str) -> None:
    assert size_text(size) == text


def test_numbers_of_columns() -> None:
    assert [time_text(x) for x in (9.2e-6, 1.2345e-3, 2.0)] == ["9.2 us", "1.234 ms", "2 s"]
    assert [rate_text(x) for x in (4.2e3, 9.93e9, 456.3e9)] == ["4.2e-06", "9.93", "456.30"]
