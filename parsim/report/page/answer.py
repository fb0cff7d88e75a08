"""One page about a scenario: the plan's step, what it rests on, and the plans beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from parsim.planner.result import SearchResult
from parsim.planner.why import Sensitivity
from parsim.report.page.cards import STYLE, cards
from parsim.report.page.document import page
from parsim.report.page.timeline import timeline_image
from parsim.report.page.views import view_html
from parsim.report.text.contention import contention_view
from parsim.report.text.planning.plan_words import plan_words
from parsim.report.text.planning.search import search_view
from parsim.report.text.planning.training_run import training_run_view
from parsim.report.text.planning.why import sensitivity_view
from parsim.report.text.prediction import prediction_view
from parsim.sim.contention.contention import Contention
from parsim.sim.prediction import Prediction
from parsim.training_run.training_run import TrainingRun
from parsim.units import format_seconds, percent

MORE_STYLE = """\
nav a { margin-right: 1.2em; }
pre { background: #f6f6f6; padding: 1em; overflow-x: auto; }
.wide { overflow-x: auto; }
img { max-width: 100%; }
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What is known of a scenario: `prediction` of its plan, or of the best of all plans.

    `ranked` are the best plans, `stated` says that the scenario has a plan of its own. `evidence`
    says in words which published runs the prediction rests on, `scenario_text` is the file that
    simulates this very plan again. `links` are the step on shared links, where the scenario has
    what closed forms leave out.
    """

    title: str
    prediction: Prediction
    ranked: SearchResult
    stated: bool
    evidence: str
    scenario_text: str
    run: TrainingRun | None = None
    sensitivity: Sensitivity | None = None
    links: Contention | None = None


def answer_page(answer: Answer) -> str:
    """The page: cards, the step's picture, tables, and how to ask again; see the package."""
    sections = dict(_sections(answer))
    links = "".join(f'<a href="#{_anchor(name)}">{escape(name)}</a>' for name in sections)
    parts = [
        f"<p><b>{escape(answer.prediction.plan.label())}</b>: {escape(standing_words(answer))}</p>",
        f"<p>{escape(plan_words(answer.prediction.plan))}</p>",
        cards(answer.prediction, answer.run),
        f"<nav>{links}</nav>",
        *(
            f'<h2 id="{_anchor(name)}">{escape(name)}</h2>\n<div class="wide">\n{body}\n</div>'
            for name, body in sections.items()
        ),
    ]
    return page(answer.title, "\n".join(parts), style=STYLE + MORE_STYLE)


def standing_words(answer: Answer) -> str:
    """How the plan stands among all plans that were looked at."""
    best, mine = answer.ranked.plans[0], answer.prediction
    if not answer.stated or best.plan == mine.plan:
        return f"the first of all plans ({answer.ranked.optimality})"
    gain = 1.0 - best.step_time / mine.step_time
    words = f"the scenario's plan; the search's first, {best.plan.label()}"
    if gain <= 0.0:
        return f"{words}, is no faster"
    seconds = format_seconds(best.step_time)
    low, high = mine.interval.low, mine.interval.high
    tie = "within its interval" if low <= best.step_time <= high else "beyond its interval"
    return f"{words}, takes {seconds}: {percent(gain)} less, {tie}"


def _sections(answer: Answer) -> Iterator[tuple[str, str]]:
    """The headings of the page with what stands below them, as HTML."""
    prediction = answer.prediction
    if prediction.timeline is not None:
        yield "One step", f"<figure>\n{timeline_image(prediction.timeline, memory=True)}\n</figure>"
    view = prediction_view(prediction, evidence=answer.evidence)
    yield "Where the step goes, and the memory", view_html(view)
    if answer.links is not None:
        yield "On shared links", view_html(contention_view(answer.links))
    yield "The plans beside it", view_html(search_view(answer.ranked))
    if answer.sensitivity is not None:
        yield "What it depends on", view_html(sensitivity_view(answer.sensitivity))
    if answer.run is not None:
        yield (
            "The whole run",
            view_html(training_run_view(answer.run, shared=answer.links is not None)),
        )
    yield "Ask again", f"<pre>{escape(answer.scenario_text)}</pre>"


def _anchor(name: str) -> str:
    return "".join(x if x.isalnum() else "-" for x in name.lower())
