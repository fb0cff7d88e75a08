"""Outcomes of a sweep, or of several plans, as text for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from parsim.report.text.planning.strategies import MARK, TRAINS_OTHERWISE
from parsim.report.text.tables import amount, between, table
from parsim.sim.confidence.interval import Interval
from parsim.sweeps import Outcome, Outcomes
from parsim.units import counted, format_bytes, format_seconds, percent

LONGEST_ERROR = 120

_WHOLE_RUN = {"days": "days", "cost_usd": "cost, USD"}
"""Figures of a whole run, of which those that any case has are columns."""


def outcomes_view(result: Outcomes) -> RenderableType:
    """One row a case: its values, its plan, time with interval, speed against the first, memory.

    Words that all plans share stand once below the table, and each row has the others. Cases of
    different models have no speed against the first: a token costs each of them something else.
    """
    shared = _shared([row.plan for row in result.rows if not row.error])
    lines: list[RenderableType] = [_rows(result, shared), Text("")]
    lines += [Text(f"all plans: {' '.join(shared)}")] if shared else []
    if any(row.training for row in result.rows):
        lines.append(Text(f"{MARK} {TRAINS_OTHERWISE}; convergence is not predicted", style="dim"))
    lines += [Text(result.headline)]
    if len(result.models) > 1:
        lines += [Text(f"- {model}") for model in result.models]
    if len(result.rows) < result.total:
        lines.append(Text(f"interrupted: {len(result.rows)} of {counted(result.total, 'case')}"))
    return Group(*lines)


def _shared(plans: Sequence[str]) -> list[str]:
    """The words that are in the labels of all plans, in the order of the first."""
    words = [plan.split() for plan in plans]
    return [word for word in words[0] if all(word in others for others in words)] if words else []


def _shortened(error: str) -> str:
    return error if len(error) <= LONGEST_ERROR else f"{error[: LONGEST_ERROR - 3]}..."


def _rows(result: Outcomes, shared: Sequence[str]) -> Table:
    """A row for each case: its numbers, or why it has none; equal columns are left out."""
    done = [row for row in result.rows if not row.error]
    whole = [name for name in _WHOLE_RUN if any(_known(getattr(row, name)) for row in done)]
    same_plan, alike = len({row.plan for row in done}) == 1, len(result.models) <= 1
    columns = [
        *_short(result.keys),
        *([] if same_plan else ["plan"]),
        *("step time", "80 % interval", *(["speed"] if alike else [])),
        *("MFU", "bubble", "peak memory"),
        *(_WHOLE_RUN[name] for name in whole),
    ]
    rows = table(" | ".join(columns), right=range(len(result.keys) + (not same_plan), 20))
    first = done[0].tokens_per_s if done and alike else None
    for row in result.rows:
        head = [row.values[key] for key in result.keys]
        if row.training:
            head[-1] += f" {MARK}"
        if row.error:
            short = _shortened(row.error)
            rows.add_row(*head, short if same_plan else f"{row.plan} {short}".strip())
            continue
        differing = " ".join(word for word in row.plan.split() if word not in shared)
        plan = [] if same_plan else [differing]
        rows.add_row(*head, *plan, *_numbers(row, first), *_run(row, whole))
    return rows


def _short(keys: Sequence[str]) -> list[str]:
    """The keys without the blocks that they stand in, where that leaves them apart."""
    last = [key.rpartition(".")[2] for key in keys]
    return last if len(set(last)) == len(last) else list(keys)


def _numbers(row: Outcome, first: float | None) -> list[str]:
    interval = Interval(low=row.step_time_low_s, high=row.step_time_high_s, basis="")
    return [
        format_seconds(row.step_time_s),
        between(interval),
        *([] if first is None else [f"{row.tokens_per_s / first:.3g} x"]),
        percent(row.mfu),
        percent(row.bubble_fraction),
        f"{format_bytes(row.peak_allocated_bytes)} ({row.memory_fit})",
    ]


def _run(row: Outcome, names: Sequence[str]) -> list[str]:
    values = (getattr(row, name) for name in names)
    return [amount(value) if _known(value) else "-" for value in values]


def _known(value: float) -> bool:
    """Whether a case has a figure: nan, which is unlike itself, says that it has none."""
    return value == value
