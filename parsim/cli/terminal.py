"""What all commands share: options, reading a scenario, and where text goes.

Results go to stdout, notes and progress to stderr.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parsim.errors import InputError, printable, shown

if TYPE_CHECKING:
    from rich.console import RenderableType

    from parsim.cli.progress_bar import ProgressBar
    from parsim.scenario import Scenario
    from parsim.sim import Prediction

INTERRUPTED = 130
"""The shell's code for what Ctrl-C ends: 128 + SIGINT."""

PRICE_KEY = "training.usd_per_device_hour"
"""The key that `--price` sets."""

ScenarioPath = Annotated[Path, typer.Argument(metavar="SCENARIO", help="scenario or plan file")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="override a field, e.g. --set plan.tp=4"),
]
SearchOverrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="override a field, e.g. --set search.tp=4"),
]
CalibratedDevice = Annotated[
    Path | None,
    typer.Option("--device", metavar="FILE", help="predict with a file of `parsim calibrate`"),
]
DevicePrice = Annotated[
    float | None,
    typer.Option("--price", min=0.0, help="US dollars a device-hour, for the whole run's cost"),
]
AsJson = Annotated[bool, typer.Option("--json", help="print one JSON document")]


def note(text: str) -> None:
    """Write a line that is no result."""
    safe = "\n".join(map(printable, text.split("\n")))
    sys.stderr.write(f"{safe}\n")


def note_memory(prediction: Prediction) -> None:
    """Warn of a plan that is tight or does not fit, where memory is not what was asked for."""
    from parsim.report.text.prediction import fit_words
    from parsim.sim.confidence.memory_fit import Fit

    if prediction.fit is not Fit.FITS:
        note(f"note: memory: {fit_words(prediction)}; see parsim simulate")


def note_recorded(scenario: Scenario) -> None:
    """Say which recorded runs corrected the device, and whether one was of this very plan."""
    from parsim.cost.recorded import recorded_notes

    plan, model = scenario.fixed_plan(), scenario.job.model.name
    for system in scenario.job.cluster.systems:
        for text in recorded_notes(system.device, model, plan):
            note(f"note: {text}")


def note_price(price: float | None, scenario: Scenario) -> None:
    """Say that a price is left aside where no whole run is asked for."""
    if price is not None and scenario.goal.tokens is None:
        note(
            "note: --price is for a whole run, and training.tokens is not stated; "
            "--set training.tokens=300B prints days, device-hours, dollars and kWh"
        )


def print_json(document: Mapping[str, Any]) -> None:
    """Write the one document of a command."""
    sys.stdout.write(json.dumps(document, indent=2) + "\n")


def show(view: RenderableType) -> None:
    """Write a result for people."""
    from parsim.report.text.tables import console

    console().print(view)


def load(
    path: Path,
    overrides: list[str] | None,
    device: Path | None = None,
    price: float | None = None,
    *,
    of_search: bool = False,
    makes_plans: bool = False,
) -> Scenario:
    """Read a scenario with its `--set` overrides; what it assumes goes to stderr.

    `device` is a file of `parsim calibrate` whose system (or device) takes the scenario's place,
    `price` the dollars of a device and hour in place of the scenario's. `of_search` refuses fields
    of the plan, which a search does not read. A command that `makes_plans` of its own needs neither
    a plan nor a search block.
    """
    from parsim.scenario import load_scenario
    from parsim.scenario.positions import read_tree

    pairs = override_pairs(overrides, device)
    if price is not None:
        pairs[PRICE_KEY] = str(float(price))
    if makes_plans and not {"plan", "search"} & set(read_tree(path, pairs).data):
        pairs["search"] = "{}"
    scenario = load_scenario(path, pairs)
    for assumption in scenario.notes:
        if price is None or not assumption.startswith(PRICE_KEY):  # `note_price` says it of --price
            note(f"note: {assumption}")
    if of_search:
        from parsim.scenario.of_search import check_of_search

        check_of_search(pairs, scenario.plan)
    return scenario


def override_pairs(overrides: list[str] | None, device: Path | None = None) -> dict[str, str]:
    """Dotted keys to their YAML text: those of a calibrated file, then those of `--set`.

    Raises:
        InputError: an override without key or sign, or a file without a device.
    """
    pairs = calibrated(device) if device else {}
    for text in overrides or []:
        key, sign, value = text.partition("=")
        if not sign or not key:
            raise InputError(f"--set '{shown(text)}' must be KEY=VALUE, e.g. --set plan.tp=4")
        pairs[whole_key(key)] = value
    return pairs


def whole_key(key: str) -> str:
    """The key in full: network and intra stand in the cluster block, the spine in the network."""
    head, _, field = key.rpartition(".")
    if head in ("network.spine", "cluster.network.spine"):
        head = "network"
    return f"cluster.{head}.{field}" if head in ("network", "intra") else key


def calibrated(file: Path) -> dict[str, str]:
    """The overrides that put a calibrated file's system, or its device, in a scenario's place.

    Raises:
        InputError: the file does not hold exactly one system or device of its own.
    """
    from parsim.cluster.reader import load_catalog

    known, catalog = load_catalog(), load_catalog([file])
    pairs = {"cluster.catalog": json.dumps([str(file.resolve())])}
    for key, before, after in (
        ("system", known.systems, catalog.systems),
        ("device", known.devices, catalog.devices),
    ):
        names = [name for name in after if name not in before]
        if len(names) == 1:
            return {**pairs, f"cluster.{key}": names[0]}
        if names:
            raise InputError(
                f"{file} holds {len(names)} {key}s ({', '.join(names)}); name one with "
                f"cluster.catalog and cluster.{key} in the scenario"
            )
    raise InputError(
        f"{file} has no system or device of its own; write one with: parsim calibrate --out {file}"
    )


class Unseen:
    """What takes a progress bar's place where stderr is no terminal."""

    def __call__(self, done: int, total: int) -> None:
        """Say nothing of what is done."""

    def sighted(self, best: float, gap: float) -> None:
        """Say nothing of the best so far."""


@contextmanager
def progress(what: str) -> Iterator[ProgressBar | Unseen]:
    """A progress bar on stderr where that is a terminal; called with (done, total)."""
    if not sys.stderr.isatty():
        yield Unseen()
        return
    from parsim.cli.progress_bar import ProgressBar, shown_bar

    with shown_bar() as bar:
        yield ProgressBar(bar, what)
