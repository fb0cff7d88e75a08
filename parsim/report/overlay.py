"""The picture of two timelines: each rank's prediction above its measurement, on one time axis.

    pp 0  predicted  ┌──┬──┬────────┐
          measured   ├──┴┬─┴─┬──────┴──┐
                     ─────────────────────── a line between ranks
    pp 1  predicted     ┌──┬──┬─────┐
          measured      └───┴───┴──────┘

It is the picture of one timeline with twice the rows, so that colours, legend and numbers are the
same. After the end of a timeline its rows are white, for they do not idle: they are done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from parsim.report.gantt import check_picture, draw_timeline, save_picture
from parsim.report.grid import readable_unit
from parsim.report.save import check_writable, headline
from parsim.report.trace import rank_labels
from parsim.timeline import Span, Timeline, ordered
from parsim.validation.quantities import STEP
from parsim.validation.timelines import Pair, TimelineComparison

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WHAT: Final = "predicted above measured"
_END: Final = "#000000"
_BETWEEN: Final = "#606060"


def draw_overlay(
    predicted: Timeline,
    measured: Timeline,
    found: TimelineComparison,
    *,
    path: Path | None = None,
    width: float = 14.0,
) -> Figure:
    """Draw the ranks that a comparison found in both timelines, and save where a path is given.

    Of several ranks that stand for one, the first is drawn; its name says so.

    Args:
        predicted: The timeline drawn above.
        measured: The timeline drawn below.
        found: Their comparison; it gives the ranks and the caption.
        path: File to write, `.png` or `.svg`.
        width: Width of the picture, inches.

    Raises:
        InputError: nothing to draw, or the file cannot be written.
    """
    if path is not None:
        check_picture(path)
        check_writable(path)
    both = side_by_side(predicted, measured, found)
    ends = (predicted.end, measured.end)
    title = " · ".join(filter(None, [headline(measured) or headline(predicted), _WHAT]))
    figure = draw_timeline(both, width=width, title=title, until=max(ends))
    axes = figure.axes[0]
    per_second = readable_unit(max(ends))[1]
    for row in range(2 * len(found.pairs)):
        end = per_second * ends[row % 2]
        axes.fill_between([end, axes.get_xlim()[1]], row, row + 1, color="white", linewidth=0.0)
        axes.vlines(end, row, row + 1, color=_END, linewidth=1.2, clip_on=False)
    for row in range(2, 2 * len(found.pairs), 2):
        axes.axhline(row, color=_BETWEEN, linewidth=0.6)
    if path is not None:
        save_picture(figure, path)
    return figure


def side_by_side(predicted: Timeline, measured: Timeline, found: TimelineComparison) -> Timeline:
    """One timeline with two rows for each compared rank, the prediction's first."""
    rows: tuple[dict[int, int], dict[int, int]] = ({}, {})
    labels: dict[str, str] = {}
    for i, pair in enumerate(found.pairs):
        rows[0][pair.predicted[0]] = 2 * i
        rows[1][pair.measured[0]] = 2 * i + 1
        labels[str(2 * i)], labels[str(2 * i + 1)] = _names(pair, predicted)
    spans = [*_on_rows(predicted, rows[0]), *_on_rows(measured, rows[1])]
    meta: dict[str, Any] = {"plan": caption(predicted, measured, found), "rank_labels": labels}
    return Timeline(spans=ordered(spans), meta=meta)


def caption(predicted: Timeline, measured: Timeline, found: TimelineComparison) -> str:
    """The plan, both step times and the error."""
    step = found.row(STEP)
    error = "" if step.error is None else f", error {step.error_text}"
    times = (
        f"step time {step.text(step.predicted)} predicted, {step.text(step.measured)} measured"
        f"{error}"
    )
    plan = measured.meta.get("plan") or predicted.meta.get("plan")
    return f"{plan} · {times}" if plan else times


def _names(pair: Pair, predicted: Timeline) -> tuple[str, str]:
    """Texts beside the two rows of a rank."""
    rank = rank_labels(predicted).get(pair.predicted[0], str(pair.rank))
    names = []
    for what, ranks in (("predicted", pair.predicted), ("measured", pair.measured)):
        several = f" (rank {ranks[0]}, first of {len(ranks)})" if len(ranks) > 1 else ""
        names.append(f"{what}{several}")
    return f"{rank}  {names[0]}", names[1]


def _on_rows(timeline: Timeline, rows: Mapping[int, int]) -> Iterator[Span]:
    for span in timeline.spans:
        if span.rank in rows:
            yield span._replace(rank=rows[span.rank])
