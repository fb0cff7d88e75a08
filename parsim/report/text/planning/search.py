"""A search's ranked plans as text for people, and the best of them that ran."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from textwrap import shorten

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from parsim.planner.measured import MeasuredPlans
from parsim.planner.ranked import Ranked
from parsim.planner.result import SearchResult
from parsim.planner.space.left_out import ALL_BUT, COMMON, EXAMPLE, by_rule, with_full
from parsim.planner.twins import fold_twins, twin_words
from parsim.report.text.planning.strategies import strategies_view
from parsim.report.text.tables import amount, between, table
from parsim.sim.confidence.memory_fit import RISK, Fit
from parsim.space.axes import SETTINGS
from parsim.space.words import plan_label
from parsim.units import DAY, format_bytes, format_seconds, percent

TIED = (
    "1= marks {} plans in one another's 80 % interval with the fastest: measure them to tell them "
    "apart (parsim run), or choose among them by memory"
)
HABITS = frozenset({*SETTINGS, *COMMON})
"""Fields of a plan that the software decides where a search does not name them."""
MOST_REASONS = 4
"""Rules that plans break that are printed; `--json` has every message."""
LONGEST_REASON = 150
"""Characters of a rule that are printed."""
LEAST_PART = 0.02
"""Shares of a step below this are not named as what it goes into."""


def search_view(result: SearchResult, *, evidence: str = "") -> RenderableType:
    """The ranked plans, what was refused and why, and how far the search went."""
    ties = sum(ranked.tied for ranked in result.plans)
    return Group(
        _plans(result, ties),
        Text(""),
        *(Text(line) for line in _best(result, ties, evidence)),
        Text(""),
        *(Text(line) for line in _lines(result)),
        Text(result.optimality, style="dim"),
        *(Text(line, style="dim") for line in _left_out(result)),
        *strategies_view(result),
    )


def _left_out(result: SearchResult) -> Iterator[str]:
    """What was not looked at, and what all plans share."""
    left_out, space = result.left_out, result.space
    alike = [name for name, what in left_out.items() if what.startswith(ALL_BUT)]
    wider = [name for name, what in left_out.items() if what.endswith(with_full(name))]
    others = [f"{name} ({what})" for name, what in left_out.items() if name not in {*alike, *wider}]
    if wider:
        others.append(f"and, unless space: full or search names them, {', '.join(wider)}")
    if others:
        yield f"not looked at: {', '.join(others)}"
    habits = [name for name in alike if name in HABITS and space.allowed(name) is None]
    stated = [name for name in alike if name not in habits]
    if stated:
        words = (_condition(name, left_out[name].removeprefix(ALL_BUT)) for name in stated)
        yield f"all plans have {'; '.join(words)}"
    if habits:
        yield f"the same in all plans (--json has the values): {', '.join(habits)}"


def _condition(name: str, words: str) -> str:
    """A field with its values, `tp=1, 2`, or with their limits, `tp <= 8`."""
    return f"{name} {words}" if words.startswith(("<", ">", "not ")) else f"{name}={words}"


def _plans(result: SearchResult, ties: int) -> Table:
    """The best plans in their order, twins of one plan in a line below it."""
    whole = bool(result.plans) and result.plans[0].run is not None
    unit = result.plans[0].speed_unit if result.plans else "tokens/s"
    how_long = "days | cost, USD" if whole else unit
    label = partial(plan_label, result.space)
    columns = f"# | plan | step time | 80 % interval | {how_long} | MFU | bubble | peak memory"
    rows = table(columns, right=range(2, 9) if whole else (0, 2, 3, 4, 5, 6, 7))
    for rank, ranked, twins in fold_twins(result.plans):
        rows.add_row(
            "1=" if ranked.tied and ties > 1 else str(rank + 1),
            label(ranked.plan),
            format_seconds(ranked.step_time),
            between(ranked.interval),
            *_how_long(ranked),
            percent(ranked.mfu),
            percent(ranked.bubble_fraction),
            format_bytes(ranked.peak_allocated),
        )
        if twins:
            names = ", ".join(twin_words(label(ranked.plan), label(twin.plan)) for twin in twins)
            rows.add_row("", f"  also {names}: slower, no less memory")
    return rows


def _how_long(ranked: Ranked) -> Iterator[str]:
    """Days and dollars of the whole run, or the speed where none is asked for."""
    if ranked.run is None:
        yield f"{ranked.tokens_per_second:,.0f}"
        return
    yield amount(ranked.run.elapsed.value / DAY)
    yield amount(ranked.run.cost.value) if ranked.run.cost else "-"


def _best(result: SearchResult, ties: int, evidence: str) -> Iterator[str]:
    """What the first plan's step goes into, and how sure it and the order are."""
    if result.plans:
        yield f"where the step of 1 goes: {dominant(result.plans[0])}"
    if evidence:
        yield f"evidence: {evidence}"
    if result.plans and result.plans[0].interval.basis:
        yield f"interval of 1: {result.plans[0].interval.basis}"
    if ties > 1:
        yield TIED.format(ties)
    yield from _tight(result)


def _lines(result: SearchResult) -> Iterator[str]:
    """What became of all plans, and which rules most of them break."""
    counts = result.counts
    usable = " or ".join(dict.fromkeys(format_bytes(limit) for limit in result.limits))
    placed = f"{counts['placed']:,} placements, of these " if "placed" in counts else ""
    slower = f"{counts['slower']:,} proven slower, fitting or not, " if "slower" in counts else ""
    idle = f"{counts['idle']:,} idle too long, " if "idle" in counts else ""
    yield (
        f"{counts['enumerated']:,} plans: {counts['illegal']:,} illegal; of the others "
        f"{placed}{counts['out_of_memory']:,} do not fit (more than {usable}), "
        f"{counts['tight']:,} tight, {slower}{idle}{counts['evaluated']:,} ranked"
    )
    if "unequal_plans" in counts:
        yield _unequal(counts)
    yield from _refusals(result)


def _unequal(counts: Mapping[str, int]) -> str:
    """What became of the plans whose stages differ."""
    left = counts["unequal_left"]
    return (
        f"{counts['unequal_plans']:,} plans with unequal stages beside them: "
        f"{counts['unequal_illegal']:,} illegal, {counts['unequal_unfit']:,} do not fit, "
        f"{counts['unequal_slower']:,} slower by a lower bound, "
        f"{counts['unequal_evaluated']:,} ranked{f', {left:,} not looked at' if left else ''}"
    )


WIDE_MARGIN = 0.15
"""From this share of the memory on people are told why, and how to state another."""
UNKNOWN_PEAKS = "no peak of such a stack is measured; search.memory_margin states another"


def _tight(result: SearchResult) -> Iterator[str]:
    """What margin the first plan has to leave, and the tight plan that would be faster."""
    if not result.plans:
        return
    best, faster = result.plans[0], result.faster_tight
    margin = f"margin of 1: {percent(best.margin)} of usable memory beside the allocator's reserve"
    if best.fit is Fit.FITS:
        unknown = result.space.memory_margin is None and best.margin > WIDE_MARGIN
        known = f" ({UNKNOWN_PEAKS})" if unknown else ""
        yield f"{margin}{known}; plans that leave less than theirs free are tight"
    else:
        yield f"no plan that was looked at fits; those listed are tight ({margin}) and {RISK}"
    if faster is not None:
        less = 100.0 * (1.0 - faster.step_time / best.step_time)
        yield (
            f"tight, but {less:.1f} % faster than 1: {plan_label(result.space, faster.plan)} "
            f"({format_seconds(faster.step_time)}, peak {format_bytes(faster.peak_allocated)}, "
            f"margin {percent(faster.margin)}); it {RISK}"
        )


def dominant(ranked: Ranked) -> str:
    """The parts of a step in words, the largest first: forward 25 %, backward 52 %, ..."""
    parts = sorted(ranked.breakdown.items(), key=lambda part: -part[1])
    return ", ".join(
        f"{name.replace('_', ' ')} {percent(seconds / ranked.step_time, digits=0)}"
        for name, seconds in parts
        if seconds >= LEAST_PART * ranked.step_time
    )


def _refusals(result: SearchResult) -> Iterator[str]:
    """The rules that most plans break, each once."""
    broken = by_rule(result.illegal_reasons)
    for rule in broken[:MOST_REASONS]:
        text = f"illegal, {rule.plans:,} {_plans_word(rule.plans)}: {rule.words}"
        whole, _, _ = text.partition(EXAMPLE) if len(text) > LONGEST_REASON else (text, "", "")
        yield shorten(whole, LONGEST_REASON, placeholder=" ...")
    rest = broken[MOST_REASONS:]
    if rest:
        total = sum(rule.plans for rule in rest)
        yield (
            f"illegal, {total:,} {_plans_word(total)}: {len(rest)} other "
            f"{'rule' if len(rest) == 1 else 'rules'} (see --json)"
        )


def _plans_word(count: int) -> str:
    return "plan" if count == 1 else "plans"


def measured_view(result: MeasuredPlans) -> RenderableType:
    """One row a plan in predicted order; regret, rank correlation, and how to predict closer."""
    rows = table("ran | predicted | measured | error", right=range(1, 4))
    for entry in result.plans:
        rows.add_row(
            entry.plan.label(),
            format_seconds(entry.predicted),
            format_seconds(entry.measured),
            percent(entry.error, signed=True),
        )
    lines = [result.headline]
    if result.spearman is not None and len(result.plans) > 1:
        lines.append(
            f"rank correlation of predicted and measured times (Spearman): {_rank(result)}"
        )
    if result.twin:
        lines.append(f"a twin of the job ran: {result.twin}; its seconds are its own")
    lines += [f"not run: {plan}: {why}" for plan, why in result.skipped]
    lines.append(_calibration(result))
    return Group(Text(""), rows, *map(Text, lines))


def _rank(result: MeasuredPlans) -> str:
    return "-" if result.spearman is None else f"{result.spearman:.2f}"


def _calibration(result: MeasuredPlans) -> str:
    """How this machine is measured, so that the next prediction is about it."""
    words = f"parsim calibrate --scenario {result.scenario} --out device.yaml"
    if result.twin:
        return f"predict this machine closer: {words}"
    return f"predict this machine closer: {words}, then search with --device device.yaml"
