"""Writes reports/network.md and the network block of a page: no number in them is typed.

    python -m parsim.fitting.reports.network REPORT BENCHMARKS RATES.json PAGE...

Anchors are measured bandwidths, RATES.json what SimGrid gives flows of `rail_tree.py` (made by
`tests/tools/simgrid_rates.py`), the engine's speed is that of the last benchmarks.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from parsim.fitting.collectives.anchors import WITHIN, anchors, kept_aside
from parsim.fitting.reports.network_anchors import (
    anchor_row,
    anchor_summary,
    bridges_text,
    curve_points,
    remarks,
    unpredicted_rows,
)
from parsim.fitting.reports.network_what_if import HEAD as WHAT_IF
from parsim.fitting.reports.network_what_if import SCENARIO, run, what_ifs
from parsim.fitting.reports.rail_tree import CASES, capacities, paths
from parsim.report.markdown import markdown_table
from parsim.report.text.contention import slower_text
from parsim.report.writing import fill_pages
from parsim.sim.links.fair_share import Flows, fair_rates
from parsim.units import format_seconds
from parsim.validation.tables import shipped_tables

ASIDE = "parsim/validation/data/network/curves.csv"

Row = Sequence[str]


def table(head: Row, rows: Iterator[Row], right: Sequence[int]) -> str:
    """A Markdown table in one text, whose columns at `right` hold numbers."""
    words = [column for column in range(len(head)) if column not in right]
    return "\n".join(markdown_table(head, rows, words=words))


def simgrid_rows(rates: Path) -> Iterator[Row]:
    """Largest relative difference of rates from SimGrid's, by number of flows."""
    stored = json.loads(rates.read_text(encoding="utf-8"))["rates_bytes_per_s"]
    for count, seed in CASES.items():
        expected = np.array(stored[str(count)])
        shares = fair_rates(Flows.of(paths(count, seed), capacities()))
        worst = float(np.abs(shares / expected - 1.0).max())
        yield f"{count:,}", str(len(set(stored[str(count)]))), f"{worst:.1e}"


def speed_rows(benchmarks: Path) -> Iterator[Row]:
    """The benchmarks' rows of flows and of steps on shared links."""
    for line in benchmarks.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and re.match(r"flows,|parsim simulate --contention", cells[0]):
            yield cells[0], cells[1], cells[2]


ANCHOR = ("group", "collective", "size", "measured GB/s", "predicted GB/s", "error")
FAR = ("system", "group", "collective", "size", "error")
"""Columns of the anchors, and of points of curves that are not met."""


def summary_block(benchmarks: Path, rates: Path) -> str:
    """What the report says, in short, for a page under `docs/`."""
    near, all_, _ = curve_points(shipped_tables("collectives"))
    grid = "; ".join(f"{count} flows {worst}" for count, _, worst in simgrid_rows(rates))
    speed = "; ".join(f"{name}: {reached}" for name, _, reached in speed_rows(benchmarks))
    parts = [
        f"{anchor_summary()} (all of them: [reports/network.md](../reports/network.md)), and "
        f"{near} of {all_} unflagged points of public curves. Largest relative difference from "
        f"SimGrid's rates: {grid}. Speed: {speed}.",
        "",
        f"`{SCENARIO}` on shared links (tier C), without its background unless named:",
        "",
        table(WHAT_IF, what_ifs(), (1, 2)),
    ]
    return "\n".join(parts)


def report(benchmarks: Path, rates: Path) -> str:
    """The whole page."""
    parts = [
        "# Network: anchors, agreement, what-if",
        "",
        "Written by `make reports`; do not edit.",
        "",
        *anchor_section(),
        *engine_section(benchmarks, rates),
        *what_if_section(),
    ]
    return "\n".join(parts) + "\n"


def anchor_section() -> list[str]:
    """Measured bandwidths and curves beside predictions."""
    return [*_met_anchors(), *_public_curves(), *_curves_aside(), *_not_predicted()]


def _met_anchors() -> list[str]:
    """Every anchor beside its prediction, and what is known of those that are not met."""
    return [
        "## Measured anchors",
        "",
        f"{anchor_summary()}. Bus bandwidth as nccl-tests counts it; no measured curve of the "
        f"system is used; error is (predicted - measured) / measured of the bandwidth.",
        "",
        table(ANCHOR, map(anchor_row, anchors()), (2, 3, 4, 5)),
        "",
        "Outside, and what is known of them:",
        "",
        *remarks(),
        "",
    ]


def _public_curves() -> list[str]:
    """How many points of the curves that constants are fitted to are met, and the others."""
    near, all_, far = curve_points(shipped_tables("collectives"))
    return [
        f"Of the unflagged points of public curves from 64 MiB on, {near} of {all_} are within "
        f"{100 * WITHIN:.0f} % (error of the time). The others:",
        "",
        table(FAR, iter(far), (3, 4)),
        "",
        "The rows up to 512 MiB of the log of 2 x 8 dgx-h100 jump by 1.5 to 2 times and are "
        "flagged; at 1 GiB it still has 0.78 of its bandwidth at 2 GiB. On 1 x 8 aws-p6-b200 the "
        "second 64 MiB take 120 us, less than links and constants allow: NCCL changes what it "
        "does between 64 and 128 MiB.",
        "",
    ]


def _curves_aside() -> list[str]:
    """Points of curves that no fit has seen."""
    near, all_, far = curve_points([kept_aside()])
    return [
        f"Of points from 64 MiB on of public curves outside `make fit-collectives` (`{ASIDE}`), "
        f"{near} of {all_} are within {100 * WITHIN:.0f} %. The others:",
        "",
        table(FAR, iter(far), (3, 4)),
        "",
    ]


def _not_predicted() -> list[str]:
    """Rows that prove nothing: what gave a constant its value, and what has no prediction."""
    return [
        "Rows that gave a constant its value, and so prove nothing of it: 12 V100 of a DGX-2 the "
        "ramp of Volta, 8 RTX 4090 the share of PCIe through host memory, 4 x 8 aws-p5 at 64 MiB "
        "and from 256 MiB to 1 GiB the three figures of LL128 rings between nodes. The other "
        "groups of aws-p5, aws-p5en and aws-p6-b200 did not.",
        "",
        "Measured, and not predicted because the links are not stated:",
        "",
        table(("what", "size", "measured GB/s", "why", "source"), iter(unpredicted_rows()), (1, 2)),
        "",
        bridges_text(),
        "",
    ]


def engine_section(benchmarks: Path, rates: Path) -> list[str]:
    """How exact shares of links are, and how fast they are found."""
    shares = table(
        ("flows", "distinct rates", "largest relative difference"),
        simgrid_rows(rates),
        (0, 1, 2),
    )
    return [
        "## Rates of SimGrid",
        "",
        "Static flows over a rail-optimised fat tree "
        "([decision 10](decisions/0010-fluid-flows.md)).",
        "",
        shares,
        "",
        "## Speed",
        "",
        table(("what", "demand", "reached"), speed_rows(benchmarks), (1, 2)),
        "",
    ]


def what_if_section() -> list[str]:
    """One scenario with changes."""
    plain = run()
    return [
        "## What if",
        "",
        f"`{SCENARIO}` on shared links, without its background unless named; alone (tier B) it "
        f"takes {format_seconds(plain.alone)}, on shared links it is "
        f"{slower_text(plain.slowdown - 1.0)}.",
        "",
        table(WHAT_IF, what_ifs(), (1, 2)),
    ]


def main(whole: Path, benchmarks: Path, rates: Path, *pages: Path) -> None:
    """Write the whole report, and fill the block in the page that has it."""
    whole.write_text(report(benchmarks, rates), encoding="utf-8")
    fill_pages(pages, {"network": summary_block(benchmarks, rates)})


if __name__ == "__main__":
    main(*(Path(word) for word in sys.argv[1:]))
