"""The command `python -m executor.strategy_suite.schedules OUT`: schedules as they were predicted.

Every schedule that the executor runs on two ranks, of one model and one batch, takes its turn of
two steps, again and again, after the machine was calibrated and all steps were predicted. What is
asked for is their order: the rank correlation of predicted and measured steps. A calibration that
is in the folder already is kept.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from executor.faults.parent import command
from executor.strategy_suite.compare import Row, predicted_step, summary
from executor.strategy_suite.orders import on_ranks
from executor.strategy_suite.platform import platform_of
from executor.strategy_suite.report import schedule_lines
from executor.suite.cases import Platform, SuiteCase, choose, scenario_text
from executor.suite.machine import look
from executor.suite.models import SMALL
from executor.suite.predict import now, scenario_of
from parsim.errors import InputError
from parsim.plan.names import AUTO, CHUNKED, SCHEDULE_NAMES, V_SHAPED
from parsim.report.writing import write_text

BASE = "1f1b"
RANKS = 2
MODEL: Mapping[str, Any] = {**SMALL, "name": "gpt-15m", "num_layers": 8, "seq_len": 256}
BATCH = 4
"""Micro-batches of one sequence: 8 layers on 2 ranks, of which each may have four chunks.

So few that bubbles are a fifth of a step: with more, schedules differ by less than turns do.
"""


def main() -> int:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m executor.strategy_suite.schedules", description=__doc__
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--report", type=Path, help="also write the page there, as .md")
    parser.add_argument("--calibration", type=float, default=60.0, help="seconds to measure")
    parser.add_argument("--turns", type=int, default=40, help="turns of every schedule, at most")
    parser.add_argument("--seconds", type=float, default=480.0, help="for the turns")
    parser.add_argument(
        "--schedules",
        type=lambda text: text.split(","),
        default=[],
        metavar="NAME,...",
        help=f"only these, {BASE} among them",
    )
    options = parser.parse_args()
    return command(lambda: _work(options))


def schedule_cases() -> list[SuiteCase]:
    """A case for each schedule that a plan may name, and for the one that is searched for."""
    return [_case(name) for name in (*SCHEDULE_NAMES, AUTO)]


def _case(name: str) -> SuiteCase:
    chunks = {"v": 2} if name in CHUNKED | V_SHAPED else {}
    plan = {"pp": RANKS, "microbatch_size": 1, "schedule": name, **chunks}
    return SuiteCase(name=name, family="schedules", model=MODEL, batch=BATCH, plan=plan)


def _predicted(out: Path, cases: Sequence[SuiteCase], platform: Platform) -> dict[str, float]:
    """Seconds of a step of each case, by name, whose scenarios are written."""
    predicted = {}
    for case in cases:
        write_text(scenario_of(out, case), scenario_text(case, platform))
        predicted[case.name] = predicted_step(scenario_of(out, case))
    return predicted


def _work(options: argparse.Namespace) -> int:
    """Predict and measure all schedules, and write the page and its document."""
    out, began = options.out, now()
    cases = choose(schedule_cases(), options.schedules)
    if options.turns < 1:
        raise InputError(f"--turns {options.turns} must be at least 1")
    if BASE not in {case.name for case in cases}:
        raise InputError(f"--schedules lacks {BASE}, to which all are compared; add it")
    platform = platform_of(out, out, cases, options.calibration)
    predicted = _predicted(out, cases, platform)
    turns = _turns(out, cases, options.turns, options.seconds)
    rows = [
        Row(model=MODEL["name"], strategy=name, predicted=predicted[name], turns=turns[name])
        for name in predicted
    ]
    document = {
        "schema_version": 1,
        "meta": {"began_at": began, "machine": asdict(look("cpu")), "ranks": RANKS},
        "schedules": summary(rows, BASE),
    }
    page = options.report or out / "schedules.md"
    write_text(page.with_suffix(".json"), json.dumps(document, indent=1) + "\n")
    write_text(page, "\n".join(schedule_lines(document, MODEL["name"])) + "\n")
    return 0


def _turns(
    out: Path, cases: Sequence[SuiteCase], most: int, seconds: float
) -> Mapping[str, Sequence[float]]:
    """Seconds of a step of each case, turn by turn; always at least one turn, and whole ones."""
    order = {
        "what": "steps",
        "cases": {case.name: str(scenario_of(Path(), case)) for case in cases},
        "turns": most,
        "least": 1,
        "seconds": seconds,
    }
    measured: Mapping[str, Sequence[float]] = on_ranks(out, RANKS, order)
    return measured


if __name__ == "__main__":
    sys.exit(main())
