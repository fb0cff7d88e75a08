"""The picture of collectives: time and bus bandwidth by size, a line for each kind.

time │       ,/     busbw │    ,─────   lines: predicted, the band around them is the 80 % interval
     │ ____,/             │  ,/         points: measured
     └──────── bytes      └──────── bytes

Crosses show what several groups at once get, where they slow one another.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Final

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from parsim.report.picture.saving import STYLE, check_picture, save_picture
from parsim.report.text.collectives import size_text
from parsim.sim.benchmark.collective_sweep import Collective, Row, Sweep
from parsim.sim.benchmark.concurrent import Concurrent

SIZE: Final = (12.5, 5.6)
DPI: Final = 130
DECADES: Final = 3.0
"""How much of the bus bandwidth is drawn: below, all lines are latency."""
LOOKS: Final[dict[Collective, tuple[str, str, str]]] = {
    "all_reduce": ("#0072B2", "-", "o"),
    "broadcast": ("#E69F00", "-", "s"),
    "reduce": ("#882255", "--", "^"),
    "all_gather": ("#009E73", "-", "D"),
    "reduce_scatter": ("#56B4E9", "--", "v"),
    "all_to_all": ("#D55E00", "-.", "P"),
    "send_recv": ("#4D4D4D", ":", "X"),
}
"""Colour, dashes and mark of each kind: kinds that cost the same lie on one another, dashed."""
BAND: Final = 0.10
"""How strong the interval's band is; seven lie on one another."""


ALIKE: Final = 0.15
"""Logarithms nearer than this are one line in the picture."""
SLOWED: Final = 1.005
"""Slower by less than this is no slowdown in the picture."""
SAME_END: Final = 1.02
"""Ends that differ by less are named together."""
LINE_INCHES: Final = 0.15
"""Height of a line of small text."""


def draw_collectives(
    sweep: Sweep,
    path: Path | None = None,
    *,
    remark: str = "",
    concurrent: Concurrent | None = None,
) -> Figure:
    """Draw all kinds; save the picture where a path is given.

    `remark` is a line below the title, such as conditions of a measurement; `concurrent` are the
    same rows with all groups at once.

    Raises:
        InputError: the file cannot be written.
    """
    check_picture(path)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=SIZE, layout="constrained")
        left, right = figure.subplots(1, 2)
        banded = _own_bands(sweep)
        for kind in sweep.kinds:
            _kind(left, right, sweep.of(kind), band=kind in banded)
        crossed = _crosses(left, right, concurrent) if concurrent is not None else ""
        _axes(left, sweep, "time", FuncFormatter(_seconds), concurrent)
        _axes(right, sweep, "bus bandwidth, GB/s", FuncFormatter(_rate), concurrent)
        _name_ends(right, sweep)
        figure.suptitle(f"Collectives on {sweep.headline}", fontsize=11)
        if remark:
            left.set_title(remark, fontsize=8, color="#4D4D4D", loc="left")
        _legend(figure, left, sweep, crossed)
    save_picture(figure, path, DPI)
    return figure


def _own_bands(sweep: Sweep) -> set[Collective]:
    """Kinds whose interval is drawn: once for those that lie on one another."""
    drawn: dict[Collective, list[float]] = {}
    for kind in sweep.kinds:
        ends = [end for row in sweep.of(kind) for end in row.interval]
        if not any(_alike(ends, others) for others in drawn.values()):
            drawn[kind] = ends
    return set(drawn)


def _alike(ends: list[float], others: list[float]) -> bool:
    return all(abs(math.log(a / b)) < ALIKE for a, b in zip(ends, others, strict=True))


def _kind(left: Axes, right: Axes, rows: tuple[Row, ...], *, band: bool) -> None:
    """The lines of one kind of collective, with its interval and measured points."""
    colour, dashes, mark = LOOKS[rows[0].collective]
    sizes = [row.size for row in rows]
    low, high = zip(*(row.interval for row in rows), strict=True)
    line: dict[str, Any] = {"color": colour, "linestyle": dashes, "linewidth": 1.6}
    if len(rows) == 1:
        line["marker"] = "_"
    if band:
        filled: dict[str, Any] = {"color": colour, "alpha": BAND, "linewidth": 0}
        left.fill_between(sizes, low, high, **filled)
        right.fill_between(sizes, _busbw(rows, high), _busbw(rows, low), **filled)
    left.plot(sizes, [row.seconds for row in rows], label=rows[0].collective, **line)
    right.plot(sizes, [row.busbw / 1e9 for row in rows], **line)
    timed = tuple(row for row in rows if row.measured is not None)
    if timed:
        at = [row.size for row in timed]
        times = [row.measured or math.nan for row in timed]
        edge = {"linewidths": 0.6, "edgecolors": "white", "zorder": 3}
        point: dict[str, Any] = {"color": colour, "marker": mark, "s": 30, **edge}
        left.scatter(at, times, **point)
        right.scatter(at, _busbw(timed, times), **point)


def _crosses(left: Axes, right: Axes, concurrent: Concurrent) -> str:
    """Crosses for rows that others slow; what the legend says of them."""
    groups = len(concurrent.layout.groups)
    slowed = [row for row in concurrent.rows if row.slowdown > SLOWED]
    for row in slowed:
        colour = LOOKS[row.alone.collective][0]
        point: dict[str, Any] = {"color": colour, "marker": "x", "s": 28, "zorder": 3}
        left.scatter([row.alone.size], [row.together], **point)
        right.scatter([row.alone.size], _busbw((row.alone,), (row.together,)), **point)
    if slowed:
        return f", crosses: {groups} groups at once"
    return f"; {groups} groups at once do not slow one another"


def _busbw(rows: tuple[Row, ...], seconds: Any) -> list[float]:  # noqa: ANN401 - any sequence
    return [row.size * row.bus_share / t / 1e9 for row, t in zip(rows, seconds, strict=True)]


def _axes(
    axes: Axes, sweep: Sweep, label: str, text: FuncFormatter, concurrent: Concurrent | None
) -> None:
    """Logarithmic axes with ticks at round sizes, as wide as what is drawn."""
    sizes = sorted({row.size for row in sweep.rows})
    axes.set(xscale="log", yscale="log", xlabel="size", ylabel=label)
    points = concurrent is not None or any(row.measured is not None for row in sweep.rows)
    edge = 1.25 if points else 1.0  # so that marks at the ends are whole
    if label != "time":
        least = _least_rate(sweep, concurrent)
        axes.set_ylim(bottom=least)
        seen = [row.size for row in sweep.rows if row.busbw / 1e9 >= least]
        sizes = [size for size in sizes if size >= min(seen)]
    if len(sizes) > 1:
        axes.set_xlim(sizes[0] / edge, sizes[-1] * edge)
    axes.xaxis.set_major_locator(FixedLocator(_ticks(sizes)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: size_text(int(size))))
    low, high = axes.get_ylim()
    close = math.log10(high / low) < 2.0
    axes.yaxis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0) if close else (1.0,)))
    axes.yaxis.set_major_formatter(text)
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(visible=True, which="major", color="#E4E4E4", linewidth=0.6)
    axes.set_axisbelow(True)


def _least_rate(sweep: Sweep, concurrent: Concurrent | None) -> float:
    """Where the bandwidth axis begins: DECADES below its top, or at what is slower and measured."""
    beside = concurrent.rows if concurrent is not None else ()
    every = [row.busbw / 1e9 for row in sweep.rows]
    every += [x for row in beside for x in _busbw((row.alone,), (row.together,))]
    timed = [x for row in sweep.rows if row.measured for x in _busbw((row,), (row.measured,))]
    return 0.8 * min([max(min(every), max(every) / 10**DECADES), *timed])


def _name_ends(axes: Axes, sweep: Sweep) -> None:
    """Right of the lines: their last bandwidth and kinds, those together that end together."""
    ends: list[tuple[float, list[str]]] = []
    for kind in sorted(sweep.kinds, key=lambda kind: -sweep.of(kind)[-1].busbw):
        rate = sweep.of(kind)[-1].busbw / 1e9
        if ends and ends[-1][0] / rate < SAME_END:
            ends[-1][1].append(kind)
        else:
            ends.append((rate, [kind]))
    low, high = (math.log10(end) for end in axes.get_ylim())
    line = (high - low) * LINE_INCHES / (0.72 * SIZE[1])
    right, free = axes.get_xlim()[1], high
    for rate, kinds in ends:
        height = line * len(kinds)
        top = min(math.log10(rate) + height / 2, free)
        free = top - height
        look: dict[str, Any] = {"va": "top", "fontsize": 8, "annotation_clip": False}
        for shift, text in ((5, f"{rate:.3g}"), (30, "\n".join(kinds))):
            axes.annotate(
                text, (right, 10**top), xytext=(shift, 0), textcoords="offset points", **look
            )


def _ticks(sizes: list[int]) -> list[float]:
    """Powers of two between the ends, every fifth (1 KiB, 32 KiB, 1 MiB) or fewer apart."""
    first, last = math.floor(math.log2(sizes[0])), math.ceil(math.log2(sizes[-1]))
    step = next(step for step in (1, 2, 5, 10, 20) if (last - first) / step <= 8 or step == 20)
    powers = [p for p in range(first, last + 1) if p % step == 0]
    return [2.0**p for p in powers] or [float(sizes[0])]


def _seconds(value: float, _: int) -> str:
    for factor, unit in ((1.0, "s"), (1e-3, "ms")):
        if value >= 0.999 * factor:
            return f"{value / factor:g} {unit}"
    return f"{value * 1e6:g} µs"


def _rate(value: float, _: int) -> str:
    return f"{value:g}"


def _legend(figure: Figure, axes: Axes, sweep: Sweep, crossed: str) -> None:
    handles, labels = axes.get_legend_handles_labels()
    title = "lines: predicted, bands: 80 % interval"
    if any(row.measured is not None for row in sweep.rows):
        title += ", points: measured"
    title += crossed
    look: dict[str, Any] = {"fontsize": 9, "title_fontsize": 9, "handlelength": 3.0}
    look |= {"title": title, "ncols": len(labels), "frameon": False}
    figure.legend(handles, labels, loc="outside lower center", **look)
