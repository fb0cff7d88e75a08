"""Reasons for and against plans as text for people."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from parsim.planner.ranked import Ranked
from parsim.planner.why import Reasons, Sensitivity
from parsim.planner.why.reasons import differences
from parsim.planner.why.sensitivity import bandwidth_words
from parsim.report.text.planning.search import dominant
from parsim.report.text.tables import between, table
from parsim.units import format_bytes, format_seconds, percent

LEAST_SHARE = 1e-4
"""Share of a step below which a difference is not listed."""
MOST_RULES = 5


def reasons_view(result: Reasons) -> RenderableType:
    """What a wish costs, part by part, or what forbids it."""
    return Group(
        Text(f"best: {_plan(result.best)}"),
        *(_refused(result) if result.wished is None else _compared(result, result.wished)),
        *(
            [Text(f"the scenario's search block leaves out {result.ruled_out}", style="dim")]
            if result.ruled_out
            else []
        ),
    )


def _plan(ranked: Ranked) -> str:
    return (
        f"{ranked.plan.label()}, {format_seconds(ranked.step_time)} (80 % "
        f"{between(ranked.interval)}), peak {format_bytes(ranked.peak_allocated)}: {ranked.fit}"
    )


def _compared(result: Reasons, wished: Ranked) -> Iterator[RenderableType]:
    more = 100.0 * (wished.step_time / result.best.step_time - 1.0)
    yield Text(f"best with {result.wish}: {_plan(wished)}")
    yield Text("")
    if wished.plan == result.best.plan:
        yield Text(f"the best plan has {result.wish} already")
        return
    low, high = result.best.interval.low, result.best.interval.high
    tied = low <= wished.step_time <= high and wished.interval.low <= result.best.step_time
    words = "a tie: the two lie in one another's interval" if tied else "beyond the interval"
    yield Text(f"{more:+.1f} % with {result.wish} ({words}); where it comes from:")
    yield _parts(result)


def _parts(result: Reasons) -> Table:
    rows = table("part | best | wished | difference", right=(1, 2, 3))
    for name, first, second in differences(result.parts, result.wished_parts):
        if abs(second - first) < LEAST_SHARE * result.best.step_time:
            continue
        change = second - first
        sign = "+" if change > 0 else "-"
        rows.add_row(
            name.replace("_", " "),
            format_seconds(first),
            format_seconds(second),
            f"{sign}{format_seconds(abs(change))}",
        )
    total = sum(result.wished_parts.values()) - sum(result.parts.values())
    rows.add_row("in all", "", "", f"{'+' if total >= 0 else '-'}{format_seconds(abs(total))}")
    return rows


def _refused(result: Reasons) -> Iterator[RenderableType]:
    yield Text(f"no plan with {result.wish}: {result.refusal}")
    for words, plans in result.rules[:MOST_RULES]:
        yield Text(f"illegal, {plans:,} plans: {words}")


def sensitivity_view(result: Sensitivity) -> RenderableType:
    """The best plan and what becomes of it after each change."""
    unit = result.best.speed_unit
    rows = table(f"change | best plan then | step time | {unit} | ", right=(2, 3))
    for change in result.changes:
        if change.plan is None:
            rows.add_row(change.what, change.why_not[:100], "", "", "")
            continue
        share = change.tokens_per_second / result.best.tokens_per_second - 1.0
        rows.add_row(
            change.what,
            change.plan.label(),
            format_seconds(change.step_time),
            f"{change.tokens_per_second:,.0f} ({percent(share, signed=True)})",
            "" if change.same_shape else "other degrees",
        )
    return Group(
        Text(f"best: {_plan(result.best)}"),
        Text(f"where its step goes: {dominant(result.best)}"),
        Text(""),
        rows,
        Text(""),
        Text(bandwidth_words(result)),
    )
