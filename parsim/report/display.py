"""Results in a shell and in a notebook: records come in, text, HTML and figures leave.

The tables are those of the commands: one view serves the terminal, `print` and a notebook.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from io import StringIO
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType

from parsim.comparison.compared import TimelineComparison
from parsim.comparison.curves import CurveComparison
from parsim.guide.record import Guide
from parsim.planner.choice import Choices
from parsim.planner.measured import MeasuredPlans
from parsim.planner.result import SearchResult
from parsim.report.page.views import view_html
from parsim.report.text.collectives import sweep_view
from parsim.report.text.measured.steps import validation_view
from parsim.report.text.measured.timelines import comparison_view, curves_view
from parsim.report.text.planning.choices import choices_view
from parsim.report.text.planning.guide import guide_view
from parsim.report.text.planning.search import measured_view, search_view
from parsim.report.text.planning.training_run import training_run_view
from parsim.report.text.prediction import prediction_view
from parsim.report.text.resolved import resolved_text
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
    tables = view_html(_VIEWS[type(result)](result))
    if not isinstance(result, Timeline):
        return tables
    from parsim.report.page.timeline import timeline_image  # draws: matplotlib takes half a second

    return tables + timeline_image(result)


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
