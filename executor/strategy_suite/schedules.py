"""The command `python -m executor.strategy_suite.schedules OUT`: schedules as they were predicted.

Every schedule that the executor runs on two ranks, of one model and one batch, takes its turn of a
few steps, again and again, after the machine was calibrated and all steps were predicted. What is
asked for is their order: the rank correlation of predicted and measured steps. What is in the
folder already is kept.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from executor.faults.parent import exit_code
from executor.strategy_suite.compare import Row, predicted_step, summary
from executor.strategy_suite.report import schedule_lines
from executor.suite.cases import (
    SMALL,
    Case,
    Platform,
    before_calibration,
    calibrated,
    choose,
    scenario_text,
)
from executor.suite.machine import look
from executor.suite.predict import now, scenario_of
from executor.suite.session import Session
from parsim.cluster.reader import load_catalog
from parsim.errors import InputError
from parsim.files import read_json
from parsim.launch import measuring
from parsim.plan.names import AUTO, CHUNKED, SCHEDULE_NAMES, V_SHAPED
from parsim.report.writing import write_text

BASE = "1f1b"
RANKS, WARMUP, STEPS, TIMEOUT = 2, 1, 3, 120.0
MODEL: Mapping[str, Any] = {**SMALL, "name": "gpt-15m", "num_layers": 8, "seq_len": 64}
BATCH = 8
"""Micro-batches of one sequence: 8 layers on 2 ranks, of which each may have four chunks."""


def main() -> int:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m executor.strategy_suite.schedules", description=__doc__
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--report", type=Path, help="also write the page there, as .md")
    parser.add_argument("--calibration", type=float, default=60.0, help="seconds to measure")
    parser.add_argument("--turns", type=int, default=5, help="turns of every schedule, at most")
    parser.add_argument("--seconds", type=float, default=600.0, help="for the turns")
    parser.add_argument(
        "--schedules",
        type=lambda text: text.split(","),
        default=[],
        metavar="NAME,...",
        help=f"only these, {BASE} among them",
    )
    options = parser.parse_args()
    return exit_code(lambda: _work(options))


def schedule_cases() -> list[Case]:
    """A case for each schedule that a plan may name, and for the one that is searched for."""
    return [_case(name) for name in (*SCHEDULE_NAMES, AUTO)]


def _case(name: str) -> Case:
    chunks = {"v": 2} if name in CHUNKED | V_SHAPED else {}
    plan = {"pp": RANKS, "microbatch_size": 1, "schedule": name, **chunks}
    return Case(name=name, family="schedules", model=MODEL, batch=BATCH, plan=plan)


def _work(options: argparse.Namespace) -> int:
    out, began = options.out, now()
    cases = choose(schedule_cases(), options.schedules)
    if options.turns < 1:
        raise InputError(f"--turns {options.turns} must be at least 1")
    if BASE not in {case.name for case in cases}:
        raise InputError(f"--schedules lacks {BASE}, to which all are compared; add it")
    platform = _platform(out, cases, options.calibration)
    predicted = {}
    for case in cases:
        write_text(scenario_of(out, case), scenario_text(case, platform))
        predicted[case.name] = predicted_step(scenario_of(out, case))
    turns = _turns(out, cases, options.turns, time.monotonic() + options.seconds)
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


def _platform(out: Path, cases: Sequence[Case], seconds: float) -> Platform:
    """The calibrated machine, measured with the shapes of all cases."""
    file, document = out / "device.yaml", out / "calibration.json"
    if not document.exists():
        paths = [scenario_of(out, case) for case in cases]
        for path, case in zip(paths, cases, strict=True):
            write_text(path, scenario_text(case, before_calibration("cpu")))
        _say(f"calibrating for {seconds:g} s")
        measured = measuring.calibrate(file, scenarios=paths, seconds=seconds, device="cpu")
        write_text(document, json.dumps(measured, indent=1) + "\n")
    return calibrated("cpu", read_json(document), load_catalog([file]))


def _turns(out: Path, cases: Sequence[Case], most: int, until: float) -> dict[str, list[float]]:
    """Seconds of a step of each case, turn by turn; always at least one turn, and whole ones."""
    seconds: dict[str, list[float]] = {case.name: [] for case in cases}
    with Session(RANKS) as session:
        for turn in range(most):
            if turn and time.monotonic() > until:
                break
            for case in cases:
                seconds[case.name].append(_step(out, case, session))
                _say(f"turn {turn}, {case.name}: {seconds[case.name][-1]:.4f} s")
    return seconds


def _step(out: Path, case: Case, session: Session) -> float:
    """The median step of one turn."""
    folder = out / case.name
    session.run(list(_words(out, case)), folder, limit=TIMEOUT)
    return float(read_json(folder / "run.json")["measured"]["step_time_s"]["median"])


def _words(out: Path, case: Case) -> Iterator[str]:
    yield str(scenario_of(out, case))
    yield from (f"--out={out / case.name}", f"--steps={STEPS}", f"--warmup={WARMUP}")
    yield from ("--device=cpu", f"--timeout={TIMEOUT:.0f}", "--oversubscribe")


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
