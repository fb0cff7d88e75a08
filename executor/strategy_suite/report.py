"""The page about strategies that were run: ages, steps, and what falls short."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from executor.strategy_suite.cases import RATE
from executor.strategy_suite.compare import TIE
from parsim.report.markdown import markdown_table
from parsim.report.writing import write_text
from parsim.units import format_seconds, percent

WANTED_DISTANCE, WANTED_ERROR, WANTED_ORDER = 0.1, 0.15, 0.9


def write_report(document: Mapping[str, Any], path: Path) -> None:
    """Write the page as Markdown."""
    write_text(path, "\n".join(_lines(document)) + "\n")


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    meta, machine = document["meta"], document["meta"]["machine"]
    yield "# Strategies that were run, against their simulation"
    yield ""
    yield "Written by `python -m executor.strategy_suite OUT --report FILE --runs RUN.json ...` on"
    yield f"{machine['count']} cores (torch {machine['torch']}), which"
    yield f"{_wanting(machine)} behind the turns: where these are more than the cores, all that is"
    yield "measured is slow, and turns differ by more than strategies do."
    yield "Everything is predicted before it runs; no constant is fitted to these runs."
    yield ""
    yield from _ages(document["ages"])
    for model, figures in document["steps"].items():
        yield from _steps(model, figures, meta["workers"])
    if document.get("limited"):
        yield from _limited()
    for model, figures in document.get("limited", {}).items():
        yield from _steps(f"{model} with limited links", figures, meta["workers"])
    if "losses" in document:
        yield from _losses(document["losses"])


def _wanting(measured: Mapping[str, Any]) -> str:
    """How many processes wanted the cores that a record names."""
    count = round(measured["load"])
    return f"{count} {'process' if count == 1 else 'processes'} wanted"


def _losses(losses: Mapping[str, Any]) -> Iterator[str]:
    rows = losses["runs"]
    yield f"## Losses of {losses['loss_of']}"
    yield ""
    yield "The same small model on the same text under every strategy, `parsim run --eval-every`."
    yield f"Trained on {losses['began_at'][:10]}; {_wanting(losses)} the cores."
    yield f"All runs reached a loss of {rows[0]['loss_that_all_reached']:.4f}; the picture beside"
    yield "this page has the whole curves."
    yield ""
    yield from markdown_table(
        "run | samples/s | last loss | seconds to the loss of all | samples to it",
        map(_loss_cells, rows),
    )
    yield ""


def _loss_cells(row: Mapping[str, Any]) -> list[str]:
    losses = (f"{row['last_loss']:.4f}", f"{row['seconds_to_it_s']:.2f}")
    return [row["run"], _whole(row["samples_per_s"]), *losses, f"{row['samples_to_it']:,.0f}"]


def _whole(number: float | None) -> str:
    return "" if number is None else f"{number:,.0f}"


def _ages(ages: Mapping[str, Any]) -> Iterator[str]:
    yield "## Ages of gradients"
    yield ""
    yield f"An asynchronous server with {ages['workers']} workers, which sleep in every round for"
    yield f"drawn seconds (mean {ages['delay_s']:g} s, the last worker's twice as long). The"
    yield "simulator gets the same seconds, and nothing for compute and messages. The distance of"
    yield "two distributions is the share of gradients whose age would have to be another (total"
    yield f"variation); at most {percent(WANTED_DISTANCE)} is asked for."
    yield ""
    yield from markdown_table(
        "bound on staleness | gradients | mean, simulated | mean, run | distance | within",
        (_age_cells(name, case) for name, case in ages["cases"].items()),
        words=(0, 5),
    )
    yield ""


def _age_cells(name: str, case: Mapping[str, Any]) -> list[object]:
    means = (f"{case['simulated_mean']:.2f}", f"{case['measured_mean']:.2f}")
    within = "yes" if case["distance"] <= WANTED_DISTANCE else "no"
    return [name, len(case["measured"]), *means, percent(case["distance"]), within]


def _limited() -> Iterator[str]:
    yield "## Limited links"
    yield ""
    yield "On one machine exchanges take hardly longer than what else it does, and strategies"
    yield "differ by less than turns do. Here whoever waits for bytes sleeps until a link of"
    yield f"{RATE / 1e6:g} MB/s, each way, has carried them (executor/strategies/link.py), while"
    yield "the real exchange runs: so the order is that of a network. The simulator has that rate"
    yield "inside the node. `ddp` reduces all gradients behind the backward, predicted as run."
    yield ""


def schedule_lines(document: Mapping[str, Any], model: str) -> Iterator[str]:
    """The page about schedules that were run."""
    machine = document["meta"]["machine"]
    yield "# Schedules that were run, in the order that was predicted"
    yield ""
    yield "Written by `python -m executor.strategy_suite.schedules OUT --report FILE` on"
    yield f"{machine['count']} cores (torch {machine['torch']}), which"
    yield f"{_wanting(machine)} behind the turns. Everything is predicted before it runs, after a"
    yield "calibration of the machine with the same shapes."
    yield ""
    yield from _steps(model, document["schedules"], document["meta"]["ranks"], "schedules", "1f1b")


def _step_cells(row: Mapping[str, Any], base: str) -> list[str]:
    return [
        row["strategy"],
        format_seconds(row["predicted_step_s"]),
        format_seconds(row["least_measured_step_s"]),
        percent(row["error_of_least"], signed=True),
        f"{row[f'predicted_over_{base}']:.3f}",
        f"{row[f'measured_over_{base}']:.3f}",
        percent(row["error_of_ratio"], signed=True),
    ]


def _steps(
    model: str, figures: Mapping[str, Any], ranks: int, what: str = "strategies", base: str = "ddp"
) -> Iterator[str]:
    """The section of a model: steps by strategy, and how well they were predicted."""
    order, shown = figures["order_spearman"], base.upper()
    yield f"## Steps of {model} on {ranks} ranks"
    yield ""
    yield f"The {what} take turns. The ratio to {shown} is that of the same turn, median over"
    yield "the turns: what else the machine does meets both. The least step is that of the fastest"
    yield "turn."
    yield ""
    yield from markdown_table(
        f"{what} | predicted | least run | error | predicted over {shown} | run over {shown} "
        "| error",
        (_step_cells(row, base) for row in figures["rows"]),
    )
    yield ""
    turns = len(figures["rows"][0]["turns_s"])
    yield f"- order of the {what}: Spearman {order:.2f} (asked for: {WANTED_ORDER});"
    yield f"  predictions within {percent(TIE)} of each other share their place"
    yield (
        f"- mean absolute error: {percent(figures['mean_absolute_error_of_ratio'])} of the ratio, "
        f"{percent(figures['mean_absolute_error_of_least'])} of the least step (asked for: "
        f"{percent(WANTED_ERROR)}); {turns} turns"
    )
    yield ""
