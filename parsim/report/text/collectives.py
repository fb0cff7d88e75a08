"""Predicted (and measured) collectives as tables for people, like those of nccl-tests."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from parsim.cost.collective.measured_curve import calibrated_groups, measured
from parsim.cost.collective.modelled import bandwidths
from parsim.report.text.tables import table
from parsim.sim.benchmark.collective_sweep import Collective, Row, Sweep, benchmarked
from parsim.sim.benchmark.concurrent import Concurrent, ConcurrentRow
from parsim.units import GIB, KIB, MIB, percent

CONVENTION = (
    "bytes, algbw and busbw as nccl-tests count them, GB = 1e9; [ ] is the 80 % interval of the "
    "time; one group alone, idle links"
)


def sweep_view(sweep: Sweep, *, verbose: bool = False) -> RenderableType:
    """A table for each kind: bytes, time, algbw, busbw, algorithm, protocol, interval."""
    parts: list[RenderableType] = [Text(sweep.headline, style="bold")]
    for kind in sweep.kinds:
        parts += [Text(""), _kind_table(sweep, kind)]
        if verbose:
            parts += [Text(line, style="dim") for line in _rests_on(sweep, kind)]
    return Group(*parts, Text(""), Text(CONVENTION, style="dim"))


def size_text(size: int) -> str:
    """A size in the largest binary unit that it is a whole multiple of."""
    for factor, unit in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size >= factor and size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} B"


def time_text(seconds: float) -> str:
    """Four digits and a unit, as in a column of times."""
    for factor, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= factor:
            return f"{seconds / factor:.4g} {unit}"
    return f"{seconds * 1e6:.4g} us"


def measured_text(median: float, mad: float | None) -> str:
    """A median with its deviation in percent."""
    spread = "" if mad is None else f" ± {percent(mad / median, digits=0)}"
    return f"{time_text(median)}{spread}"


def rate_text(rate: float) -> str:
    """GB/s with two decimals, small ones with two digits."""
    return f"{rate / 1e9:.2f}" if rate >= 1e8 else f"{rate / 1e9:.2g}"


def _kind_table(sweep: Sweep, kind: Collective) -> Table:
    rows = sweep.of(kind)
    beside = any(row.measured is not None for row in sweep.rows)
    columns = "bytes | time | algbw GB/s | busbw GB/s | algorithm | protocol | 80 % interval"
    columns += " | measured | error" if beside else ""
    filled = table(columns, title=kind, right=(0, 1, 2, 3, 7, 8))
    for row in rows:
        filled.add_row(*_cells(row), *(_measured_cells(row) if beside else ()))
    return filled


def _cells(row: Row) -> Iterator[str]:
    low, high = row.interval
    yield size_text(row.size)
    yield time_text(row.seconds)
    yield rate_text(row.algbw)
    yield rate_text(row.busbw)
    yield row.algorithm
    yield row.protocol
    yield f"[{time_text(low)}, {time_text(high)}]"


def _measured_cells(row: Row) -> tuple[str, str]:
    if row.measured is None or row.error is None:
        return "-", "-"
    return measured_text(row.measured, row.measured_mad), percent(row.error, signed=True)


def _rests_on(sweep: Sweep, kind: Collective) -> Iterator[str]:
    """What a kind's numbers come from."""
    layout = sweep.layout
    system, group = layout.system, layout.alone
    if kind != "send_recv" and measured(system, kind, group)[0]:
        yield "rests on: a measured curve of this very group"
    elif calibrated_groups(system, kind, group)[0]:
        yield "rests on: times that a calibration measured"
    elif kind == "send_recv":
        yield "rests on: link rates, one hop and what a call takes; no measured curve"
    elif any(curve.collective == kind for curve in system.curves):
        yield "rests on: links and constants, scaled by the nearest measured curve in a node"
    elif kind in system.residuals:
        yield "rests on: links and constants, and times that a calibration measured of other groups"
    else:
        yield "rests on: links and constants alone; no measured curve of this collective"
    if system.library != "gloo" and kind != "send_recv":
        rates = bandwidths(benchmarked(system), kind, group).items()
        words = ", ".join(f"{name} {rate[0] / 1e9:.1f}" for name, rate in rates if rate[0] > 0)
        yield f"algbw of endless messages by links and constants, GB/s: {words}"


def concurrent_view(concurrent: Concurrent) -> RenderableType:
    """Each kind alone and with all groups at once, and the link that is shared."""
    layout = concurrent.layout
    system = f"{layout.cluster.num_nodes} x {layout.system.id}"
    headline = f"{len(layout.groups)} groups of {layout.num_ranks} ranks at once, {system}"
    parts: list[RenderableType] = [Text(""), Text(headline, style="bold")]
    for kind in dict.fromkeys(row.alone.collective for row in concurrent.rows):
        words = f"{kind}: {_shared(concurrent.of(kind))}"
        parts += [Text(""), Text(words, style="bold"), _concurrent_table(concurrent, kind)]
    if layout.per_device > 1:
        words = f"{layout.per_device} groups have ranks on one device and share it"
        parts.append(Text(f"oversubscribed: {words}", style="dim"))
    return Group(*parts)


def _concurrent_table(concurrent: Concurrent, kind: Collective) -> Table:
    rows = concurrent.of(kind)
    beside = any(row.measured_together is not None for row in concurrent.rows)
    columns = "bytes | alone | together | slower"
    columns += " | measured alone | measured together | slower" if beside else ""
    filled = table(columns, right=range(7))
    for row in rows:
        cells = [size_text(row.alone.size), time_text(row.alone.seconds), time_text(row.together)]
        cells.append(f"x{row.slowdown:.2f}")
        filled.add_row(*cells, *(_measured_together(row) if beside else ()))
    return filled


def _measured_together(row: ConcurrentRow) -> tuple[str, str, str]:
    alone, both, slower = row.alone.measured, row.measured_together, row.measured_slowdown
    return (
        "-" if alone is None else measured_text(alone, row.alone.measured_mad),
        "-" if both is None else measured_text(both, row.together_mad),
        "-" if slower is None else f"x{slower:.2f}",
    )


def _shared(rows: tuple[ConcurrentRow, ...]) -> str:
    links = [row.shared for row in rows if row.shared is not None]
    if not links:
        return "no link is shared"
    worst = max(links, key=lambda link: link.saturated)
    words = f"{worst.groups} groups share {worst.name} ({worst.link_class})"
    if worst.saturated <= 0.0:
        return f"{words}, which is never full"
    return f"{words}, full for up to {time_text(worst.saturated)}"
