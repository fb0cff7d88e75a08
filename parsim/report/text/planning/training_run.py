"""A whole training run as lines for people, and as cells of a table of plans."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from parsim.report.text.tables import amount, between_estimates, pairs
from parsim.training_run.estimate import Estimate
from parsim.training_run.training_run import TrainingRun
from parsim.units import DAY, format_count, format_span, percent


def training_run_view(run: TrainingRun, *, shared: bool = False) -> RenderableType:
    """Days, device-hours, dollars and kilowatt-hours of a run, each with its interval.

    Its steps are those on `shared` links, where these were simulated.
    """
    links = ", each as long as on shared links" if shared else ""
    title = f"the whole run: {format_count(run.tokens)} {run.unit}, {run.steps:,} steps{links}"
    return Group(Text(""), pairs(_rows(run), title=title))


def _rows(run: TrainingRun) -> Iterator[tuple[str, str]]:
    training, share = run.goodput, run.goodput.share
    yield "days", f"{_days(run.duration)} without interruptions"
    ends = f"{100 * share.low:.1f} to {percent(share.high)}"
    yield "", f"{_days(run.elapsed)} with them: goodput {percent(share.value)} ({ends})"
    yield (
        "goodput",
        f"an interruption every {format_span(training.between_interruptions)}, restart "
        f"{format_span(training.restart_time)}; a checkpoint of "
        f"{format_span(training.checkpoint_stall)} every "
        f"{format_span(training.checkpoint_interval)}",
    )
    yield "device-hours", f"{between_estimates(run.device_hours)} of {run.devices:,} devices"
    yield "cost", cost_words(run)
    yield "energy", _energy(run.energy)


def cost_words(run: TrainingRun) -> str:
    """Dollars at the usual price, and at the ends of the list prices."""
    price = run.price
    if price is None or run.cost is None:
        return "no list price of the device; --price 2.5 states the dollars of a device and hour"
    cost = between_estimates(run.cost)
    words = f"{cost} US dollars at {price.usual:.2f} a device-hour ({price.basis})"
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
    return f"{between_estimates(energy)} kWh at the site's meter"


def _days(seconds: Estimate) -> str:
    return between_estimates(seconds.times(1.0 / DAY))


def run_cells(run: TrainingRun) -> tuple[str, str, str]:
    """Days with interruptions and dollars, each with its interval, and kilowatt-hours."""
    return (
        between_estimates(run.elapsed.times(1.0 / DAY)),
        between_estimates(run.cost) if run.cost else "-",
        amount(run.energy.value) if run.energy else "-",
    )
