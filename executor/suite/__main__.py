"""The command `python -m executor.suite OUT`: how far predictions are off on this machine.

It calibrates, predicts every case, and only then runs them: each against its prediction. What is
done is on disk at once, so a suite that is cut short leaves what it had.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from executor.faults.messages import say
from executor.faults.parent import command
from executor.suite.budget import WARMUP
from executor.suite.cases import CPU, CUDA, QUICK, SuiteCase, choose
from executor.suite.machine import Machine, look
from executor.suite.repeats import folders, write_coverage
from executor.suite.suite import LONGEST_CALIBRATION, Suite, redraw
from parsim.launch.lock import locked

SECONDS = {"cpu": 600.0, "cuda": 480.0, "quick": 180.0}
"""Never more; `quick` needs about 40 on a machine that does nothing else."""

CALIBRATION = {"cpu": 0.2, "cuda": 0.125, "quick": 5.0 / 180.0}
"""Share of the seconds in which kernels and links are measured."""

STEPS = {"cpu": 10, "cuda": 20, "quick": 3}


def main() -> int:
    """Run the suite; 0 if no case failed."""
    options = _options()
    try:
        return command(lambda: _work(options))
    except KeyboardInterrupt:
        say("error: interrupted; what was done is in the folder")
        return 130


def _work(options: argparse.Namespace) -> int:
    if options.report:
        return redraw(options.out)
    machine = look(options.device or ("cpu" if options.quick else None))
    with locked(options.out):
        if options.repeat == 1:
            return _suite(options, machine, options.out).run()
        places = folders(options.out, options.repeat)
        codes = [_suite(options, machine, folder).run() for folder in places]
        write_coverage(options.out, options.repeat)
        say(f"coverage written: {options.out / 'coverage.md'}")
        return max(codes)


def _suite(options: argparse.Namespace, machine: Machine, out: Path) -> Suite:
    size = "quick" if options.quick else machine.kind
    cases: tuple[SuiteCase, ...] = {"quick": QUICK, "cpu": CPU, "cuda": CUDA}[size]
    seconds = options.seconds or SECONDS[size]
    return Suite(
        out=out,
        machine=machine,
        cases=choose(cases, options.cases),
        seconds=seconds,
        calibration=min(CALIBRATION[size] * seconds, LONGEST_CALIBRATION),
        steps=options.steps or STEPS[size],
        warmup=1 if options.quick else WARMUP,
        resume=options.resume,
        base=options.base,
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m executor.suite", description=__doc__)
    add = parser.add_argument
    add("out", type=Path, metavar="OUT", help="folder for everything")
    add("--device", choices=("cpu", "cuda"), help="default: GPUs if there are any")
    add(
        "--base",
        metavar="DEVICE",
        help="the catalog's device that stands in for a GPU that the catalog lacks",
    )
    add("--report", action="store_true", help="write the report of OUT again")
    _add_extent(parser)
    return parser.parse_args()


def _add_extent(parser: argparse.ArgumentParser) -> None:
    """How much is run, and how often."""
    add = parser.add_argument
    add("--seconds", type=_positive, help=f"for all of it; default: {_listed(SECONDS)}")
    add("--steps", type=_count, help=f"timed steps of a case; default: {_listed(STEPS)}")
    add(
        "--cases",
        type=lambda text: text.split(","),
        default=[],
        metavar="NAME,...",
        help="only these",
    )
    add(
        "--quick",
        action="store_true",
        help="three tiny cases, by default on the CPU: does it all work?",
    )
    add(
        "--repeat",
        type=_count,
        default=1,
        metavar="N",
        help="whole suites one behind the other, and how often intervals held: OUT/coverage.md",
    )
    add("--resume", action="store_true", help="keep the calibration and the cases that are done")


def _listed(defaults: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.0f}" for name, value in defaults.items())


def _positive(text: str) -> float:
    value = float(text)
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} must be above 0")
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} must be at least 1")
    return value


if __name__ == "__main__":
    raise SystemExit(main())
