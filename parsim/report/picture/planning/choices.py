"""The picture of choices among plans and cluster sizes: time, cost and memory, intervals as bars.

cost │ o──        memory │ o
     │   o──o──          │  o  x
     │                   │   o   x
     └───── days         └───────── days      a mark and colour for each node count
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from parsim.planner.choice import Choice, Choices
from parsim.report.picture.saving import STYLE, check_picture, save_picture
from parsim.report.picture.scatter import COLOURS, MARKS
from parsim.training_run.estimate import Estimate
from parsim.units import DAY, GIB

SIZE: Final = (11.0, 5.2)
FAINT: Final = 0.3
"""Shade of the choices that are not on the front."""


def draw_choices(result: Choices, path: Path | None = None) -> Figure:
    """Draw all choices; save the picture where a path is given.

    Raises:
        InputError: the file cannot be written.
    """
    check_picture(path)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=SIZE, layout="constrained")
        cost, memory = figure.subplots(1, 2)
        _draw_by_nodes(result, cost, memory)
        _settle(cost, result, _cost_words(result))
        _settle(memory, result, "peak memory, GiB")
        figure.suptitle(
            "bars: intervals of the time; faint: another choice is better in time, memory and cost",
            fontsize=10,
        )
        look = {"ncols": 6, "frameon": False, "fontsize": 8}
        figure.legend(*cost.get_legend_handles_labels(), loc="outside lower center", **look)
    save_picture(figure, path)
    return figure


def _draw_by_nodes(result: Choices, cost: Axes, memory: Axes) -> None:
    """Draw the choices of each number of nodes in a colour and with a mark of its own."""
    for number, nodes in enumerate(sorted({choice.nodes for choice in result.choices})):
        alike = [choice for choice in result.choices if choice.nodes == nodes]
        look = {"color": COLOURS[number % len(COLOURS)], "fmt": MARKS[number % len(MARKS)]}
        label = f"{nodes} node{'s' if nodes > 1 else ''}"
        _draw(cost, [(choice, _cost(choice)) for choice in alike], look, label)
        _draw(memory, [(choice, _memory(choice)) for choice in alike], look, "")


def _settle(axes: Axes, result: Choices, upward: str) -> None:
    """Name both axes, which begin at zero, and draw a faint grid."""
    whole = all(choice.ranked.run for choice in result.choices)
    time = "days, interruptions included" if whole else "step time, s"
    axes.set(xlabel=time, ylabel=upward)
    axes.set_ylim(bottom=0.0)
    axes.set_xlim(left=0.0)
    axes.grid(visible=True, color="#EEEEEE", linewidth=0.6)
    axes.set_axisbelow(True)


def _draw(
    axes: Axes, points: list[tuple[Choice, Estimate]], look: dict[str, Any], label: str
) -> None:
    for choice, up in sorted(points, key=lambda point: not point[0].on_front):
        across, best = _time(choice), choice.on_front
        axes.errorbar(
            across.value,
            up.value,
            xerr=[[across.value - across.low], [across.high - across.value]] if best else None,
            markersize=5 if best else 3,
            elinewidth=0.7,
            alpha=1.0 if best else FAINT,
            label=label,
            **look,
        )
        label = ""  # one entry of the legend a node count


def _time(choice: Choice) -> Estimate:
    run, ranked = choice.ranked.run, choice.ranked
    if run is None:
        return Estimate(ranked.interval.low, ranked.step_time, ranked.interval.high)
    return run.elapsed.times(1.0 / DAY)


def _cost(choice: Choice) -> Estimate:
    run = choice.ranked.run
    if run is not None and run.cost is not None:
        return run.cost.times(1e-6)
    return _time(choice).times(choice.devices)


def _cost_words(result: Choices) -> str:
    run = result.choices[0].ranked.run
    if run is None:
        return "device-seconds a step"
    return "device-days" if run.cost is None else "cost, million US dollars"


def _memory(choice: Choice) -> Estimate:
    gib = choice.ranked.peak_allocated / GIB
    return Estimate(gib, gib, gib)
