"""Results in a shell and in a notebook: records come in, text, HTML and figures leave.

The tables are those of the commands: one view serves the terminal, `print` and a notebook.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from html import escape
from io import StringIO
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from parsim.comparison.compared import TimelineComparison
from parsim.comparison.curves import CurveComparison
from parsim.guide.record import Guide
from parsim.planner.choice import Choices
from parsim.planner.measured import MeasuredPlans
from parsim.planner.result import SearchResult
from parsim.report.text.collectives import sweep_view
from parsim.report.text.curves import curves_view
from parsim.report.text.measured.steps import validation_view
from parsim.report.text.measured.timelines import comparison_view
from parsim.report.text.planning.choices import choices_view
from parsim.report.text.planning.guide import guide_view
from parsim.report.text.planning.measured import measured_view
from parsim.report.text.planning.search import search_view
from parsim.report.text.planning.training_run import training_run_view
from parsim.report.text.prediction import prediction_view
from parsim.report.text.scenario import resolved_text
from parsim.report.text.summary import timeline_view
from parsim.report.text.tables import console
from parsim.results import Result
from parsim.scenario import Scenario
from parsim.sim.benchmark.collective_sweep import Sweep
from parsim.sim.prediction import Prediction
from parsim.timelines.timeline import Timeline
from parsim.training_run.training_run import TrainingRun
from parsim.validation.validate import Validation

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def text(result: Result) -> str:
    """The tables of a result, as wide as the terminal."""
    written = StringIO()
    page = Console(file=written, width=console().width, highlight=False, markup=False, emoji=False)
    page.print(_VIEWS[type(result)](result))
    return "\n".join(line.rstrip() for line in written.getvalue().splitlines()).strip("\n")


def html(result: Result) -> str:
    """The tables of a result; of a timeline its summary and picture."""
    picture = _picture(result) if isinstance(result, Timeline) else ""
    return _html(_VIEWS[type(result)](result)) + picture


def _picture(timeline: Timeline) -> str:
    """A timeline's picture inside the page: pixels, for ten thousand spans are 2 MB as lines."""
    from parsim.report.picture.gantt import draw_timeline
    from parsim.report.picture.saving import rendered

    png = b64encode(rendered(draw_timeline(timeline), ".png")).decode("ascii")
    return f'<img alt="timeline of all ranks" src="data:image/png;base64,{png}">'


def figure(result: Result, options: Mapping[str, Any]) -> Figure:
    """The picture of a timeline, of measured steps, of collectives by size, or of choices."""
    if isinstance(result, Validation):
        from parsim.report.picture.scatter import draw_scatter

        return draw_scatter(result, **options)
    if isinstance(result, Sweep):
        from parsim.report.picture.collective_curves import draw_collectives

        return draw_collectives(result, **options)
    if isinstance(result, Choices):
        from parsim.report.picture.planning.choices import draw_choices

        return draw_choices(result, **options)
    if isinstance(result, Timeline):
        from parsim.report.picture.gantt import draw_timeline

        return draw_timeline(result, **options)
    raise TypeError(f"{type(result).__name__} has no picture")


_VIEWS: dict[type[Result], Callable[[Any], RenderableType]] = {
    Choices: choices_view,
    CurveComparison: curves_view,
    Guide: guide_view,
    MeasuredPlans: measured_view,
    Prediction: prediction_view,
    Scenario: resolved_text,
    SearchResult: search_view,
    Sweep: sweep_view,
    Timeline: timeline_view,
    TimelineComparison: comparison_view,
    TrainingRun: training_run_view,
    Validation: partial(validation_view, rows=False),
}
"""The tables of a result, as its command prints them."""


def _html(view: RenderableType) -> str:
    """A view of text and tables, piece by piece; its lines keep their order and their alignment."""
    if isinstance(view, Group):
        return "\n".join(_html(part) for part in view.renderables)
    if isinstance(view, Table):
        return "\n".join(_table(view))
    text = view.plain if isinstance(view, Text) else str(view)
    return f'<div style="white-space: pre-wrap">{escape(text)}</div>' if text else ""


def _table(table: Table) -> Iterator[str]:
    yield "<table>"
    if table.title:
        yield f'<caption style="text-align: left"><b>{escape(str(table.title))}</b></caption>'
    if any(str(column.header) for column in table.columns):
        yield _row("th", [(str(column.header), column.justify) for column in table.columns])
    columns = [[(str(cell), column.justify) for cell in column.cells] for column in table.columns]
    for cells in zip(*columns, strict=True):
        yield _row("td", cells)
    yield "</table>"
    if table.caption:
        yield f"<div>{escape(str(table.caption))}</div>"


def _row(tag: str, cells: Sequence[tuple[str, str]]) -> str:
    row = (f'<{tag} style="text-align: {side}">{escape(text)}</{tag}>' for text, side in cells)
    return f"<tr>{''.join(row)}</tr>"
