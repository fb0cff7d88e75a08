"""The command `python -m executor.strategy_suite OUT`: see the package."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

from executor.faults.parent import command
from executor.strategy_suite.cases import (
    AGED,
    DELAYED_WORKERS,
    RATE,
    WORKERS,
    cases,
    delays,
    limited_cases,
    limited_text,
)
from executor.strategy_suite.compare import (
    Row,
    by_model,
    distance,
    predicted_step,
    simulated_ages,
    summary,
)
from executor.strategy_suite.orders import on_ranks
from executor.strategy_suite.platform import platform_of
from executor.strategy_suite.report import write_report
from executor.suite.cases import (
    CATALOG,
    Platform,
    SuiteCase,
    scenario_text,
)
from executor.suite.machine import look
from executor.suite.predict import now, scenario_of
from parsim.comparison.curves import compare_curves
from parsim.files import read_json
from parsim.report.picture.loss import draw_curves
from parsim.report.writing import write_text


def main() -> int:
    """Run what was asked for; what is in the folder already is kept."""
    options = _options()
    return command(lambda: _work(options))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m executor.strategy_suite", description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--report", type=Path, help="also write the report there, as .md")
    parser.add_argument("--delay", type=float, default=0.1, help="mean injected delay, seconds")
    parser.add_argument("--calibration", type=float, default=60.0, help="seconds to measure")
    parser.add_argument(
        "--links", choices=("both", "machine", "limited"), default="both", help="of the turns"
    )
    parser.add_argument("--turns", type=int, default=7, help="turns of every strategy, at most")
    parser.add_argument("--seconds", type=float, default=130.0, help="for the turns, each way")
    parser.add_argument(
        "--runs", type=Path, nargs="*", default=(), help="run.json of trainings whose losses to add"
    )
    return parser.parse_args()


def _work(options: argparse.Namespace) -> int:
    """Measure ages and steps, compare losses of runs, and write the page."""
    out = options.out
    out.mkdir(parents=True, exist_ok=True)
    began = now()
    ages = _kept(out / "ages.json", lambda: _aged(out, options.delay))
    steps, limited = _both_links(out, options)
    machine = _kept(out / "machine.json", lambda: asdict(look("cpu")))
    document = {
        "schema_version": 1,
        "meta": {"began_at": began, "machine": machine, "workers": WORKERS},
        "ages": ages,
        "steps": steps,
        "limited": limited,
    }
    page = options.report or out / "strategies.md"
    if options.runs:
        compared = compare_curves(options.runs)
        when = {"began_at": began, "load": machine["load"]}
        document["losses"] = {**compared.to_json(), **when}
        draw_curves(compared, page.with_suffix(".png"))
    write_text(page.with_suffix(".json"), json.dumps(document, indent=1) + "\n")
    write_report(document, page)
    return 0


def _both_links(out: Path, options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """Steps on the machine's links, and on slow ones, each where it is asked for."""
    ddp = [case for case in (*cases(), *limited_cases()) if case.name.endswith(", ddp")]
    platform = platform_of(out, out / "shapes", ddp, options.calibration)
    steps, limited = {}, {}
    if options.links != "limited":
        steps = _kept(out / "steps.json", lambda: _steps(out, platform, options, MACHINE))
    if options.links != "machine":
        measured = read_json(out / "calibration.json")["device"]["id"]
        bare = replace(platform, system="cpu", device=str(measured))  # without curves of its links
        limited = _kept(out / "limited.json", lambda: _steps(out, bare, options, SLOW_LINKS))
    return steps, limited


def _kept(path: Path, make: Any) -> Any:  # noqa: ANN401 - a part of a document
    """What a file holds, made first where it is not there."""
    if not path.exists():
        write_text(path, json.dumps(make(), indent=1) + "\n")
    return read_json(path)


def _aged(out: Path, delay: float) -> dict[str, Any]:
    """Ages of gradients, measured and simulated, with the same delays."""
    measured = on_ranks(out / "ages", DELAYED_WORKERS, {"what": "ages", "delay_s": delay})
    ages = {}
    for name, options in AGED.items():
        ours = simulated_ages(delays(delay), options)
        theirs = measured[name]
        ages[name] = {
            "simulated": ours,
            "measured": theirs,
            "distance": distance(ours, theirs),
            "simulated_mean": sum(ours) / len(ours),
            "measured_mean": sum(theirs) / len(theirs),
        }
    return {"delay_s": delay, "workers": DELAYED_WORKERS, "cases": ages}


class Links(NamedTuple):
    """Links of turns: a name, the cases on them, their scenarios, and a limit in bytes a second."""

    name: str
    cases: Callable[[], list[SuiteCase]]
    text: Callable[[SuiteCase, Platform], str]
    rate: float | None


MACHINE = Links("turns", cases, scenario_text, None)
SLOW_LINKS = Links("limited", limited_cases, limited_text, RATE)


def _steps(
    out: Path, platform: Platform, options: argparse.Namespace, links: Links
) -> dict[str, Any]:
    """Steps of all strategies, predicted first and then measured in turns."""
    folder, listed = out / links.name, links.cases()
    predicted = {case.name: _predicted(folder, case, platform, links) for case in listed}
    order = {
        "what": "turns",
        "cases": {case.name: f"{case.name}/scenario.yaml" for case in listed},
        "turns": options.turns,
        "least": 2,
        "seconds": options.seconds,
        "bytes_per_s": links.rate,
    }
    turns = on_ranks(folder, WORKERS, order)
    rows = [
        Row(
            model=case.family,
            strategy=case.name.removeprefix(f"{case.family}, "),
            predicted=predicted[case.name],
            turns=turns[case.name],
        )
        for case in listed
    ]
    return {model: summary(of) for model, of in by_model(rows).items()}


def _predicted(folder: Path, case: SuiteCase, platform: Platform, links: Links) -> float:
    """Write a case's scenario, and predict its step."""
    path = scenario_of(folder, case)
    write_text(path, links.text(case, platform).replace(CATALOG, f"../{CATALOG}"))
    return predicted_step(path)


if __name__ == "__main__":
    sys.exit(main())
