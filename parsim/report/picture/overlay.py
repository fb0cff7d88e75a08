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

from parsim.comparison.compared import Names, Pair, TimelineComparison, drawn_step
from parsim.comparison.quantities import STEP
from parsim.report.picture.gantt import draw_timeline
from parsim.report.picture.grid import readable_unit
from parsim.report.picture.saving import check_picture, save_picture
from parsim.report.text.summary import headline, rank_labels
from parsim.timelines.timeline import Span, Timeline, ordered

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_END: Final = "#000000"
_BETWEEN: Final = "#606060"


def draw_overlay(
    predicted: Timeline,
    measured: Timeline,
    comparison: TimelineComparison,
    *,
    path: Path | None = None,
    width: float = 14.0,
) -> Figure:
    """Draw the ranks that a comparison found in both timelines, and save where a path is given.

    Of several ranks that stand for one, the first is drawn; its name says so. The comparison gives
    the ranks and the caption; `width` is in inches.

    Raises:
        InputError: nothing to draw, or the file cannot be written.
    """
    check_picture(path)
    both = side_by_side(predicted, measured, comparison)
    ends = (predicted.end, measured.end)
    what = " above ".join(comparison.names)
    title = " · ".join(filter(None, [headline(measured) or headline(predicted), what]))
    figure = draw_timeline(both, width=width, title=title, until=max(ends))
    axes = figure.axes[0]
    per_second = readable_unit(max(ends))[1]
    for row in range(2 * len(comparison.pairs)):
        end = per_second * ends[row % 2]
        axes.fill_between([end, axes.get_xlim()[1]], row, row + 1, color="white", linewidth=0.0)
        axes.vlines(end, row, row + 1, color=_END, linewidth=1.2, clip_on=False)
    for row in range(2, 2 * len(comparison.pairs), 2):
        axes.axhline(row, color=_BETWEEN, linewidth=0.6)
    save_picture(figure, path)
    return figure


def side_by_side(
    predicted: Timeline, measured: Timeline, comparison: TimelineComparison
) -> Timeline:
    """One timeline with two rows for each compared rank, the prediction's first."""
    rows: tuple[dict[int, int], dict[int, int]] = ({}, {})
    labels: dict[str, str] = {}
    for i, pair in enumerate(comparison.pairs):
        rows[0][pair.predicted[0]] = 2 * i
        rows[1][pair.measured[0]] = 2 * i + 1
        labels[str(2 * i)], labels[str(2 * i + 1)] = _labels(pair, predicted, comparison.names)
    spans = [*_on_rows(predicted, rows[0]), *_on_rows(measured, rows[1])]
    meta: dict[str, Any] = {"plan": caption(predicted, measured, comparison), "rank_labels": labels}
    return Timeline(spans=ordered(spans), meta=meta)


def caption(predicted: Timeline, measured: Timeline, comparison: TimelineComparison) -> str:
    """The plan, both step times and the error."""
    step = comparison.row(STEP)
    error = "" if step.error is None else f", {comparison.judges} {step.error_text}"
    first, second = comparison.names
    words = f"{step.text(step.predicted)} {first}, {step.text(step.measured)} {second}"
    drawn = drawn_step(measured.meta)
    times = f"step time {words}{error}{f'; {drawn}' if drawn else ''}"
    if comparison.unlike:
        times = f"{times}; {comparison.unlike}"
    plan = measured.meta.get("plan") or predicted.meta.get("plan")
    return f"{plan} · {times}" if plan else times


def _labels(pair: Pair, predicted: Timeline, names: Names) -> tuple[str, str]:
    """Texts beside the two rows of a rank."""
    rank = rank_labels(predicted).get(pair.predicted[0], str(pair.rank))
    labels = []
    for what, ranks in zip(names, (pair.predicted, pair.measured), strict=True):
        several = f" (rank {ranks[0]}, first of {len(ranks)})" if len(ranks) > 1 else ""
        labels.append(f"{what}{several}")
    return f"{rank}  {labels[0]}", labels[1]


def _on_rows(timeline: Timeline, rows: Mapping[int, int]) -> Iterator[Span]:
    for span in timeline.spans:
        if span.rank in rows:
            yield span._replace(rank=rows[span.rank])
