"""A whole training run as lines for people, and choices among plans and cluster sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from parsim.planner.choice import Choice, Choices
from parsim.report.text.tables import pairs, table
from parsim.training_run.estimate import Estimate
from parsim.training_run.training_run import TrainingRun
from parsim.units import DAY, format_bytes, format_count, format_seconds, format_span


def training_run_view(run: TrainingRun) -> RenderableType:
    """Days, device-hours, dollars and kilowatt-hours of a run, each with its interval."""
    title = f"the whole run: {format_count(run.tokens)} {run.unit}, {run.steps:,} steps"
    return Group(Text(""), pairs(_rows(run), title=title))


def _rows(run: TrainingRun) -> Iterator[tuple[str, str]]:
    training, share = run.goodput, run.goodput.share
    yield "days", f"{_days(run.duration)} without interruptions"
    yield "", f"{_days(run.elapsed)} with them: goodput {_percent(share)}"
    yield (
        "goodput",
        f"an interruption every {format_span(training.between_interruptions)}, restart "
        f"{format_span(training.restart_time)}; a checkpoint of "
        f"{format_span(training.checkpoint_stall)} every "
        f"{format_span(training.checkpoint_interval)}",
    )
    yield "device-hours", f"{_between(run.device_hours)} of {run.devices:,} devices"
    yield "cost", cost_words(run)
    yield "energy", _energy(run.energy)


def cost_words(run: TrainingRun) -> str:
    """Dollars at the usual price, and at the ends of the list prices."""
    price = run.price
    if price is None or run.cost is None:
        return "no list price of the device; --price 2.5 states the dollars of a device and hour"
    words = f"{_between(run.cost)} US dollars at {price.usual:.2f} a device-hour ({price.basis})"
    if price.low == price.high:
        return words
    hours = run.device_hours.value
    return (
        f"{words}; {amount(hours * price.low)} to {amount(hours * price.high)} at list prices of "
        f"{price.low:.2f} to {price.high:.2f}"
    )


def _energy(energy: Estimate | None) -> str:
    if energy is None:
        return "the catalog has no power of the device"
    return f"{_between(energy)} kWh at the site's meter"


def _days(seconds: Estimate) -> str:
    return _between(seconds.times(1.0 / DAY))


def _percent(share: Estimate) -> str:
    return f"{100 * share.value:.1f} % ({100 * share.low:.1f} to {100 * share.high:.1f} %)"


def _between(estimate: Estimate) -> str:
    return f"{amount(estimate.value)} ({amount(estimate.low)} to {amount(estimate.high)})"


def amount(value: float) -> str:
    """Three figures: 24.5, 613,000, 2.10 M."""
    for factor, suffix in ((1e9, " B"), (1e6, " M"), (1.0, "")):
        scaled = value / factor
        if scaled >= 100.0:
            return f"{float(f'{scaled:.3g}'):,.0f}{suffix}"
        if scaled >= 1.0:
            return f"{scaled:.{1 if scaled >= 10.0 else 2}f}{suffix}"
    return f"{value:.3g}"


MOST_LEFT_OUT = 6
"""Node counts without a choice that are explained, the largest; `--json` has all."""


def choices_view(result: Choices) -> RenderableType:
    """The choices in their order, and why cluster sizes have none."""
    return Group(
        _choice_rows(result),
        Text(""),
        Text(f"least {result.objective} first, of {result.legal:,} legal plans"),
        Text(_front_words(result)),
        *_left_out_words(result.left_out),
        Text(result.optimality, style="dim"),
    )


def _left_out_words(left_out: Mapping[int, str]) -> Iterator[Text]:
    """Why node counts have no choice; the largest ones, which come nearest, are explained."""
    counts = sorted(left_out)
    if len(counts) > MOST_LEFT_OUT:
        smaller = counts[:-MOST_LEFT_OUT]
        yield Text(f"{smaller[0]} to {smaller[-1]} nodes: no choice either (see --json)")
    for nodes in counts[-MOST_LEFT_OUT:]:
        yield Text(f"{nodes} nodes: {left_out[nodes]}")


def _front_words(result: Choices) -> str:
    if not result.front:
        return "* no other choice listed is as good in time, memory and cost at once"
    beaten = sum(not choice.on_front for choice in result.choices)
    return (
        f"none of these is beaten in time, memory and cost at once; {beaten} more are the best in "
        f"time and memory on as many nodes, and beaten on others (see --json)"
    )


def _choice_rows(result: Choices) -> Table:
    choices = result.choices
    if result.front:
        choices = tuple(choice for choice in choices if choice.on_front)
    whole = any(choice.ranked.run for choice in choices)
    run = " | days | cost, USD | energy, kWh" if whole else ""
    rows = table(f"# | nodes | plan | step time{run} | peak memory | ", right=(0, 1, 3, 4, 5, 6, 7))
    for number, choice in enumerate(choices, start=1):
        rows.add_row(str(number), *_cells(choice))
    return rows


def _cells(choice: Choice) -> list[str]:
    ranked = choice.ranked
    return [
        str(choice.nodes),
        ranked.plan.label(),
        format_seconds(ranked.step_time),
        *(run_cells(ranked.run) if ranked.run else ()),
        format_bytes(ranked.peak_allocated),
        "*" if choice.on_front else "",
    ]


def run_cells(run: TrainingRun) -> tuple[str, str, str]:
    """Days with interruptions and dollars, each with its interval, and kilowatt-hours."""
    return (
        _between_ends(run.elapsed.times(1.0 / DAY)),
        _between_ends(run.cost) if run.cost else "-",
        amount(run.energy.value) if run.energy else "-",
    )


def _between_ends(estimate: Estimate) -> str:
    low, value, high = (amount(part) for part in estimate)
    return f"{value} ({low} to {high})"
