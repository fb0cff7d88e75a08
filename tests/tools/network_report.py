"""Writes reports/network.md and the README's network block: no number in them is typed.

    python -m tests.tools.network_report README.md reports/network.md reports/benchmarks.md

Anchors come from `parsim/validation/anchors.py`, SimGrid's rates from what `simgrid_rates.py` has
stored, the engine's speed from the last benchmarks, what-ifs from one scenario with changes.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from parsim.report.collective_table import size_text
from parsim.report.contention import bottleneck_text, slower
from parsim.report.readme import fill
from parsim.report.together import node_list, slower_text
from parsim.scenario import Scenario, load_scenario
from parsim.scenario.beside import shared_jobs
from parsim.sim.contention import Contention, simulate_contention
from parsim.sim.fair_share import Flows, fair_rates
from parsim.sim.jobs_together import jobs_together
from parsim.units import format_seconds
from parsim.validation.anchors import (
    WITHIN,
    Anchor,
    anchors,
    bridged,
    kept_aside,
    unpredicted,
)
from parsim.validation.collectives import UNCALIBRATED, shipped_collectives, validate_collectives
from tests.tools.rail_tree import CASES, capacities, paths

SCENARIO = "scenarios/llama2-7b-shared-fabric.yaml"
STORED = Path("tests/parsim/sim/simgrid_rates.json")
QUIET = {"background": "null"}
LARGE = 64 * 2**20
ASIDE = "parsim/validation/data/network/curves.csv"

Row = Sequence[str]


def table(head: Row, rows: Iterator[Row], right: Sequence[int]) -> str:
    """A Markdown table."""
    rule = ["--:" if place in right else "---" for place in range(len(head))]
    lines = [head, rule, *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def anchor_row(one: Anchor) -> Row:
    """One anchor: where, measured, predicted, signed error."""
    what = f"{one.collective} {one.algorithm}".strip().replace("_", "-")
    return (
        f"{one.nodes} x {one.ranks // one.nodes} {one.system}",
        what,
        size_text(round(one.size)),
        f"{one.measured / 1e9:.1f}",
        f"{one.predicted / 1e9:.1f}",
        f"{100.0 * one.error:+.1f} %" if one.within else f"**{100.0 * one.error:+.1f} %**",
    )


def anchor_summary() -> str:
    """How many anchors, and how many points of public curves, are near."""
    found = anchors()
    near = sum(one.within for one in found)
    other = [one for one in found if not one.gave]
    return (
        f"{near} of {len(found)} measured bus bandwidths of 64 MiB and more are met within "
        f"{100 * WITHIN:.0f} % from topology and catalog alone, {sum(x.within for x in other)} of "
        f"{len(other)} without those that gave a constant its value"
    )


def curve_points(paths: Sequence[Path]) -> tuple[int, int, list[Row]]:
    """Points of public curves from 64 MiB on without a flag: near, all, and those that are far."""
    found = validate_collectives(paths, modes=(UNCALIBRATED,))
    chosen = [
        (row, error)
        for row in found.rows
        if row.size >= LARGE and not row.flag and (error := row.error(UNCALIBRATED)) is not None
    ]
    far: list[Row] = [
        (row.system, row.group, row.kind, size_text(round(row.size)), f"{100.0 * error:+.1f} %")
        for row, error in chosen
        if abs(error) > WITHIN
    ]
    return len(chosen) - len(far), len(chosen), far


def unpredicted_rows() -> list[Row]:
    """Measured bandwidths that nothing is said against, and why."""
    return [
        (one.what, size_text(round(one.size)), f"{one.measured / 1e9:.1f}", one.reason, one.source)
        for one in unpredicted()
    ]


def bridges_text() -> str:
    """What the bridged pair without a prediction would reach by the number of its bridges."""
    pair = unpredicted()[0]
    said = ", ".join(f"{bridged(count, pair.size) / 1e9:.0f}" for count in (1, 2, 3))
    return (
        f"{pair.what} would reach {said} GB/s over one, two, three bridges; "
        f"{pair.measured / 1e9:.1f} are measured, so that no number of whole bridges explains it."
    )


def simgrid_rows() -> Iterator[Row]:
    """Largest relative difference of rates from SimGrid's, by number of flows."""
    stored = json.loads(STORED.read_text(encoding="utf-8"))["rates_bytes_per_s"]
    for count, seed in CASES.items():
        expected = np.array(stored[str(count)])
        found = fair_rates(Flows.of(paths(count, seed), capacities()))
        worst = float(np.abs(found / expected - 1.0).max())
        yield f"{count:,}", str(len(set(stored[str(count)]))), f"{worst:.1e}"


def speed_rows(benchmarks: Path) -> Iterator[Row]:
    """The benchmarks' rows of flows and of steps on shared links."""
    for line in benchmarks.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and re.match(r"flows,|parsim simulate --contention", cells[0]):
            yield cells[0], cells[1], cells[2]


def what_ifs() -> Iterator[Row]:
    """The scenario with changes: step, slower than unchanged by, and the link that is full."""
    plain = run()
    yield what_if("unchanged", plain, plain)
    spine = {"cluster.network.nodes_per_leaf": "2", "cluster.network.oversubscription": "16"}
    yield what_if("two nodes a leaf, spine oversubscribed 16 times", run(spine), plain)
    yield what_if("interface nic:0.3 failed", run({"cluster.failed": "[nic:0.3]"}), plain)
    yield what_if("rank 3 computes 1.2 times as long", run(slow={3: 1.2}), plain)
    scenario = load_scenario(SCENARIO)
    beside = simulate_contention(
        scenario.job, scenario.fixed_plan(), background=scenario.background
    )
    yield what_if("checkpoints and batches of the scenario", beside, plain)
    yield from two_jobs(load_scenario(SCENARIO, QUIET), plain)


def run(changes: dict[str, str] | None = None, slow: dict[int, float] | None = None) -> Contention:
    """The scenario without background, changed."""
    scenario = load_scenario(SCENARIO, {**QUIET, **(changes or {})})
    return simulate_contention(scenario.job, scenario.fixed_plan(), slow=slow)


def what_if(name: str, found: Contention, plain: Contention) -> Row:
    """One line of the table."""
    more = 100.0 * (found.step_time / plain.step_time - 1.0)
    return (
        name,
        format_seconds(found.step_time),
        f"{more:+.2f} %",
        bottleneck_text(found.bottleneck),
    )


def two_jobs(scenario: Scenario, plain: Contention) -> Iterator[Row]:
    """The scenario twice, side by side and with nodes in turn."""
    for nodes in ([(0, 1, 2, 3), (4, 5, 6, 7)], [(0, 2, 4, 6), (1, 3, 5, 7)]):
        jobs, system = shared_jobs([(scenario, nodes[0]), (scenario, nodes[1])])
        found = jobs_together(jobs, system)
        one = found.jobs[0]
        where = f"the same job beside it, on nodes {node_list(nodes[0])} and {node_list(nodes[1])}"
        said = "no link is shared"
        if found.shared_links:
            said = f"{bottleneck_text(found.bottleneck)}, of {format_seconds(found.seconds)}"
        yield where, format_seconds(one.together), slower_text(one), said


WHAT_IF = ("what if", "step", "slower", "bottleneck")
ANCHOR = ("group", "collective", "size", "measured GB/s", "predicted GB/s", "error")


def readme_block(benchmarks: Path) -> str:
    """The README's network block."""
    near, all_, _ = curve_points(shipped_collectives())
    grid = "; ".join(f"{count} flows {worst}" for count, _, worst in simgrid_rows())
    speed = "; ".join(f"{name}: {reached}" for name, _, reached in speed_rows(benchmarks))
    parts = [
        f"{anchor_summary()} (all of them: [reports/network.md](reports/network.md)), and {near} "
        f"of {all_} unflagged points of public curves. Largest relative difference from SimGrid's "
        f"rates: {grid}. Speed: {speed}.",
        "",
        f"`{SCENARIO}` on shared links (tier C), without its background unless named:",
        "",
        table(WHAT_IF, what_ifs(), (1, 2)),
    ]
    return "\n".join(parts)


def report(benchmarks: Path) -> str:
    """The whole page."""
    near, all_, far = curve_points(shipped_collectives())
    aside_near, aside_all, aside_far = curve_points([kept_aside()])
    remarks = [
        f"- {one.nodes} x {one.ranks // one.nodes} {one.system}, {size_text(round(one.size))}: "
        f"{one.remark} ({one.source})."
        for one in anchors()
        if not one.within
    ]
    plain = run()
    parts = [
        "# Network: anchors, agreement, what-if",
        "",
        "Written by `python -m tests.tools.network_report README.md reports/network.md "
        "reports/benchmarks.md`; do not edit.",
        "",
        "## Measured anchors",
        "",
        f"{anchor_summary()}. Bus bandwidth as nccl-tests counts it; no measured curve of the "
        f"system is used; error is (predicted - measured) / measured of the bandwidth.",
        "",
        table(ANCHOR, map(anchor_row, anchors()), (2, 3, 4, 5)),
        "",
        "Outside, and what is known of them:",
        "",
        *remarks,
        "",
        f"Of the unflagged points of public curves from 64 MiB on, {near} of {all_} are within "
        f"{100 * WITHIN:.0f} % (error of the time). The others:",
        "",
        table(("system", "group", "collective", "size", "error"), iter(far), (3, 4)),
        "",
        "The rows up to 512 MiB of the log of 2 x 8 dgx-h100 jump by 1.5 to 2 times and are "
        "flagged; at 1 GiB it still has 0.78 of its bandwidth at 2 GiB. On 1 x 8 aws-p6-b200 the "
        "second 64 MiB take 120 us, less than links and constants allow: NCCL changes what it "
        "does between 64 and 128 MiB.",
        "",
        f"Of points from 64 MiB on of public curves outside `make fit-collectives` (`{ASIDE}`), "
        f"{aside_near} of {aside_all} are within {100 * WITHIN:.0f} %. The others:",
        "",
        table(("system", "group", "collective", "size", "error"), iter(aside_far), (3, 4)),
        "",
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
        "## Rates of SimGrid",
        "",
        "Static flows over a rail-optimised fat tree "
        "([decision 10](decisions/0010-fluid-flows.md)).",
        "",
        table(
            ("flows", "distinct rates", "largest relative difference"), simgrid_rows(), (0, 1, 2)
        ),
        "",
        "## Speed",
        "",
        table(("what", "demand", "reached"), speed_rows(benchmarks), (1, 2)),
        "",
        "## What if",
        "",
        f"`{SCENARIO}` on shared links, without its background unless named; alone (tier B) it "
        f"takes {format_seconds(plain.alone)}, on shared links it is {slower(plain)}.",
        "",
        table(WHAT_IF, what_ifs(), (1, 2)),
    ]
    return "\n".join(parts) + "\n"


def main(readme: Path, page: Path, benchmarks: Path) -> None:
    """Write the page and fill the block."""
    page.write_text(report(benchmarks), encoding="utf-8")
    text = readme.read_text(encoding="utf-8")
    readme.write_text(fill(text, "network", readme_block(benchmarks)), encoding="utf-8")


if __name__ == "__main__":
    main(*(Path(word) for word in sys.argv[1:4]))
