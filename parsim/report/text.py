"""Results as text for people: rich tables, drawn only inside commands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from parsim.search.search import SearchResult
from parsim.sim.interval import Interval
from parsim.sim.prediction import BUBBLE_DEFINITION, Prediction
from parsim.units import format_bytes, format_seconds
from parsim.validation.compare import Validation
from parsim.validation.comparison import Comparison
from parsim.validation.ranking import Ranking
from parsim.validation.summary import Summary

TIED = (
    "1= marks {} plans in one another's 80 % interval with the fastest: measure them to tell them "
    "apart (parsim run), or choose among them by memory"
)
BAR = 28
"""Width of the share bars, characters."""


def table(*columns: str, title: str | None = None, right: Iterable[int] = ()) -> Table:
    """A borderless table; columns numbered in `right` are right-aligned."""
    made = Table(title=title, box=None, pad_edge=False, title_justify="left", title_style="bold")
    for i, name in enumerate(columns):
        made.add_column(name, justify="right" if i in set(right) else "left", no_wrap=i == 0)
    return made


def prediction_view(found: Prediction, *, usable: float, evidence: str = "") -> RenderableType:
    """One simulated plan: verdict, time, where it goes, memory, what was assumed."""
    head = table("", "", right=())
    for name, value in _headline(found, usable):
        head.add_row(name, value)
    if evidence:
        head.add_row("evidence", evidence)
    return Group(
        Text(found.plan.label(), style="bold"),
        head,
        *_slot_parts(found),
        Text(""),
        _shares("where the step goes (mean over pipeline ranks)", found.breakdown, format_seconds),
        Text(""),
        _shares(f"memory at the peak of pipeline rank {found.worst_rank}", found.memory,
                format_bytes),
        Text(""),
        _shares("activations among it, by what keeps them", found.activations, format_bytes),
        Text(""),
        Text(BUBBLE_DEFINITION, style="dim"),
        *(Text(f"note: {note}", style="dim") for note in (*found.notes, *found.memory_notes)),
    )  # fmt: skip


def _slot_parts(found: Prediction) -> list[RenderableType]:
    """What each kind of node of a mixed cluster does."""
    if not found.slots:
        return []
    made = table("replicas", "pp", "nodes", "device", "layers", "micro-batches", "busy", "done at",
                 "memory", "of", title="who does what", right=range(4, 10))  # fmt: skip
    for slot in found.slots:
        made.add_row(
            numbers(slot.replicas),
            str(slot.pipeline_rank),
            "+".join(slot.groups),
            "+".join(slot.devices),
            str(slot.layers),
            str(slot.microbatches),
            format_seconds(slot.busy),
            format_seconds(slot.end),
            format_bytes(slot.peak_allocated),
            format_bytes(slot.usable),
        )
    return [Text(""), made]


def numbers(found: Sequence[int]) -> str:
    """Ascending numbers in runs: 0-3, 8."""
    runs: list[list[int]] = []
    for one in found:
        if runs and one == runs[-1][1] + 1:
            runs[-1][1] = one
        else:
            runs.append([one, one])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _headline(found: Prediction, usable: float) -> Iterable[tuple[str, str]]:
    peak = found.worst_slot.peak_allocated if found.slots else max(found.peak_allocated)
    fits = "fits" if peak <= usable else f"does NOT fit, {format_bytes(peak - usable)} too much"
    on = f" ({'+'.join(found.worst_slot.devices)})" if found.slots else ""
    yield ("memory", f"{format_bytes(peak)} of {format_bytes(usable)} on rank "
                     f"{found.worst_rank}{on}: {fits}")  # fmt: skip
    low, high = found.peak_interval
    yield ("", f"allocated (what must fit), 80 % {format_bytes(low)} to {format_bytes(high)} "
               f"({found.memory_basis}); reserved by the allocator "
               f"{format_bytes(max(found.peak_reserved))}, context "
               f"{format_bytes(found.context)}")  # fmt: skip
    yield ("step time", f"{format_seconds(found.step_time)}  "
                        f"(pipeline phase {format_seconds(found.pipeline_time)}, longest "
                        f"device span {format_seconds(found.device_span)})")  # fmt: skip
    yield ("80 % interval", f"{between(found.interval)}: {found.interval.basis}")
    yield ("tokens/s", f"{found.tokens_per_second:,.0f}")
    yield ("MFU / HFU", f"{100 * found.mfu:.1f} % / {100 * found.hfu:.1f} %  of "
                        f"{found.peak_flops / 1e12:.4g} TFLOP/s dense "
                        f"{found.plan.precision}")  # fmt: skip
    yield ("bubble", f"{100 * found.bubble_fraction:.1f} % of the pipeline phase "
                     f"({100 * found.bubble_overhead:.1f} % over busy time)")  # fmt: skip


def between(interval: Interval) -> str:
    """An interval as text: 39.942 to 46.240 s, one unit where both have the same."""
    low, high = format_seconds(interval.low), format_seconds(interval.high)
    number, _, unit = low.rpartition(" ")
    return f"{number if high.endswith(f' {unit}') else low} to {high}"


def _shares(title: str, parts: Mapping[str, float], form: object) -> Table:
    made = table("part", "amount", "share", "", title=title, right=(1, 2))
    total = sum(parts.values()) or 1.0
    for name, value in parts.items():
        if value <= 1e-9 * total:  # nothing, or what rounding left
            continue
        share = value / total
        bar = "█" * round(BAR * share)
        made.add_row(name.replace("_", " "), form(value), f"{100 * share:.1f} %", bar)  # type: ignore[operator]
    return made


def search_view(
    result: SearchResult, *, usable: float, others: Sequence[float] = (), evidence: str = ""
) -> RenderableType:
    """The ranked plans, what was refused, and how far the search went.

    `usable` are the bytes that a plan may take on a device, `others` those on other kinds.
    """
    limits = " or ".join(dict.fromkeys(format_bytes(one) for one in (usable, *others)))
    made = table(
        "#",
        "plan",
        "step time",
        "80 % interval",
        "tokens/s",
        "MFU",
        "bubble",
        "peak memory",
        right=(0, 2, 3, 4, 5, 6, 7),
    )
    ties = sum(entry.tied for entry in result.plans)
    for i, entry in enumerate(result.plans, start=1):
        made.add_row(
            "1=" if entry.tied and ties > 1 else str(i),
            entry.plan.label(),
            format_seconds(entry.step_time),
            between(entry.interval),
            f"{entry.tokens_per_second:,.0f}",
            f"{100 * entry.mfu:.1f} %",
            f"{100 * entry.bubble_fraction:.1f} %",
            format_bytes(entry.peak_allocated),
        )
    counts = result.counts
    placed = f"{counts['placed']:,} placements, of these " if "placed" in counts else ""
    said = (
        f"{counts['enumerated']:,} plans: {counts['illegal']:,} illegal, {placed}"
        f"{counts['out_of_memory']:,} out of memory (limit {limits}), "
        f"{counts['evaluated']:,} ranked"
    )
    lines = [Text(said), *([Text(f"evidence: {evidence}")] if evidence else [])]
    lines += [Text(f"interval of 1: {basis}") for basis in _bases(result)]
    if ties > 1:
        lines.append(Text(TIED.format(ties)))
    return Group(made, Text(""), *lines, Text(result.optimality, style="dim"))


def _bases(result: SearchResult) -> Iterable[str]:
    """What the interval of the best plan rests on."""
    return [entry.interval.basis for entry in result.plans[:1] if entry.interval.basis]


def percent(value: float | None, signed: bool = False) -> str:
    """A fraction as percent text; a dash where there is none."""
    if value is None:
        return "-"
    return f"{100 * value:+.1f} %" if signed else f"{100 * value:.1f} %"


def validation_view(found: Validation, *, rows: bool) -> RenderableType:
    """Per-row signed errors (if asked) and one summary line per table."""
    parts: list[RenderableType] = []
    if rows:
        for name in found.tables:
            parts += [_rows_table(name, found.of(name)), Text("")]
            bubbles = [row for row in found.of(name) if row.measured_bubble is not None]
            parts += [_bubble_table(name, bubbles), Text("")] if bubbles else []
    steps: dict[str, Summary] = {}
    for name in found.tables:
        steps |= {name: found.summary(name)} | found.by_kind(name)
    memory = {name: found.memory_summary(name) for name in found.tables}
    parts.append(_summary_table("step time, (predicted - measured) / measured", steps))
    if any(one.n for one in memory.values()):
        kept = {name: one for name, one in memory.items() if one.n}
        parts += [Text(""), _summary_table("peak memory", kept)]
    rankings = {name: found.ranking(name) for name in found.tables}
    if any(one.groups for one in rankings.values()):
        parts += [Text(""), _ranking_table({k: one for k, one in rankings.items() if one.groups})]
    if any(found.coverage(name).n for name in found.tables):
        parts += [Text(""), _coverage_table(found)]
    return Group(*parts)


def _coverage_table(found: Validation) -> Table:
    made = table("table", "n", "inside", "half width", "median error", right=range(1, 5),
                 title="80 % intervals of step time")  # fmt: skip
    for name in (*found.tables, None):
        one = found.coverage(name)
        if one.n:
            shares = (percent(x) for x in (one.covered, one.half_width, one.error))
            made.add_row(name or "all", str(one.n), *shares)
    return made


def _rows_table(name: str, rows: tuple[Comparison, ...]) -> Table:
    made = table("row", "model", "plan", "predicted", "measured", "error", "memory error",
                 title=name, right=(3, 4, 5, 6))  # fmt: skip
    for row in rows:
        if row.skipped:
            made.add_row(row.row_id, "skipped", row.reason)
            continue
        made.add_row(
            row.row_id,
            row.model,
            row.plan,
            format_seconds(row.predicted_step or 0.0),
            format_seconds(row.measured_step) if row.measured_step else "-",
            percent(row.error, signed=True),
            percent(row.memory_error, signed=True),
        )
    return made


def _bubble_table(name: str, rows: list[Comparison]) -> Table:
    made = table("row", "plan", "by parsim's times", "by the row's", "measured",
                 title=f"{name}: bubble over a rank's span", right=(2, 3, 4))  # fmt: skip
    for row in rows:
        shares = (row.predicted_bubble, row.bubble_from_profile, row.measured_bubble)
        cells = ("-" if one is None else f"{100.0 * one:.2f} %" for one in shares)
        made.add_row(row.row_id, row.plan, *cells)
    return made


def _summary_table(title: str, tables: Mapping[str, Summary]) -> Table:
    made = table("table", "n", "skipped", "mean", "median", "p90", "max", "bias", title=title,
                 right=range(1, 8))  # fmt: skip
    for name, one in tables.items():
        made.add_row(
            name,
            str(one.n),
            str(one.n_skipped),
            percent(one.mean_abs_error),
            percent(one.median_abs_error),
            percent(one.p90_abs_error),
            percent(one.max_abs_error),
            percent(one.bias, signed=True),
        )
    return made


def _ranking_table(tables: Mapping[str, Ranking]) -> Table:
    title = "choice among plans of one model, batch and device count (regret: slower than the best)"
    made = table("table", "groups", "Spearman mean", "min", "regret@1 mean", "max", "regret@3 mean",
                 "max", title=title, right=range(1, 8))  # fmt: skip
    for name, one in tables.items():
        made.add_row(name, str(one.groups), *ranking_cells(one))
    return made


def ranking_cells(one: Ranking) -> list[str]:
    """Spearman mean and least, regret@1 and regret@3 mean and largest, as text."""
    agreement = ["-" if x is None else f"{x:.3f}" for x in (one.spearman_mean, one.spearman_min)]
    regrets = (one.regret_at_1_mean, one.regret_at_1_max, one.regret_at_3_mean, one.regret_at_3_max)
    return [*agreement, *(percent(x) for x in regrets)]


def console(*, stderr: bool = False) -> Console:
    """A console that wraps at the terminal's width, or at 160 columns in a pipe or file.

    Texts of the user's files are printed as they are: `[x]` is no markup, `:x:` no emoji.
    """
    made = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not made.is_terminal:
        made = Console(
            stderr=stderr, highlight=False, markup=False, emoji=False, width=160, no_color=True
        )
    return made
