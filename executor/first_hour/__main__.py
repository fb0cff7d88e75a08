"""The first hour on a GPU, in order of value: `python -m executor.first_hour OUT`.

    tests      do the code paths of CUDA work at all?             pytest -m gpu
    suite      how far are step time and memory off?              calibrate, predict, run, compare
    speed      is the executor as fast as plain torch?            one process, steps in turn
    kernels    which kernels run, and where does the GPU idle?    torch's profiler, two models
    sharing    do several ranks work on one GPU?                  NCCL from 2.30 on, or gloo
    faults     do faults end in seconds, with rank and step?      pytest, real ranks on the CPU

Each part is bounded and can be resumed: the same command again runs what is not done. With
`--device cpu` all of it runs on a machine without a GPU, in small: a rehearsal. What is there at
the end is packed into OUT.zip too.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from executor.faults.messages import say
from executor.faults.parent import command
from executor.first_hour.needs import ALWAYS, FOR_TESTS, missing
from parsim.errors import InputError
from parsim.launch.lock import locked

SECONDS = {"cuda": 3300.0, "cpu": 600.0}
"""For all of it; an hour less what starting and looking takes."""

PARTS = ("tests", "suite", "speed", "kernels", "sharing", "faults")


def main() -> int:
    """Run what is not done; 0 if every part is."""
    parser = argparse.ArgumentParser(
        prog="python -m executor.first_hour",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("out", type=Path, metavar="OUT", help="folder for everything")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: GPUs if there are any")
    parser.add_argument(
        "--base",
        metavar="DEVICE",
        help="the catalog's device that stands in for a GPU that the catalog lacks",
    )
    parser.add_argument(
        "--seconds", type=float, help="for all parts together; default: 3300, cpu 600"
    )
    parser.add_argument("--parts", type=_names, metavar="NAME,...", help=f"of {','.join(PARTS)}")
    return command(lambda: _work(parser.parse_args()))


def _names(text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}; allowed: {', '.join(PARTS)}")
    return names


def check_imports(parts: list[str]) -> None:
    """Refuse to begin where a package that one of the parts needs is missing.

    Raises:
        InputError: naming all of them.
    """
    tests = FOR_TESTS if {"tests", "faults"} & set(parts) else ()
    lacking = missing([*ALWAYS, *tests])
    if lacking:
        raise InputError(
            f"{sys.executable} cannot import {', '.join(lacking)}; install or carry them (see "
            f"executor/suite/first_hour.md), or leave parts out with --parts"
        )


def _work(options: argparse.Namespace) -> int:
    wanted = options.parts or list(PARTS)
    check_imports(wanted)
    # what these import may be among what was missing
    from executor.first_hour.hour import parts_of
    from executor.first_hour.parts import HourParts, archived
    from executor.suite.machine import look

    out: Path = options.out
    with locked(out):
        machine = look(options.device)
        parts = tuple(part for part in parts_of(out, machine, options.base) if part.name in wanted)
        seconds = options.seconds or SECONDS[machine.kind]
        try:
            return HourParts(out=out, parts=parts, seconds=seconds).run()
        except KeyboardInterrupt:
            say("error: interrupted; the same command goes on with what is left")
            return 130
        finally:
            say(f"packed: {archived(out)}")


if __name__ == "__main__":
    raise SystemExit(main())
