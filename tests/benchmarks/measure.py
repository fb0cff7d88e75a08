"""What a benchmark is: a demand, a way to measure, and the best of several runs in CPU time."""

from __future__ import annotations

import gc
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class NotRun(Exception):
    """A benchmark could not be run; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """One row of the table: `measure` returns seconds, or units per second where `rate` is set."""

    name: str
    demand: float
    unit: str
    measure: Callable[[], float]

    @property
    def rate(self) -> bool:
        """More is better."""
        return self.unit.endswith("/s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was reached, or why nothing was."""

    benchmark: Benchmark
    reached: float | None
    why: str = ""

    @property
    def met(self) -> bool:
        """Whether the demand was reached."""
        if self.reached is None:
            return False
        wanted = self.benchmark.demand
        return self.reached >= wanted if self.benchmark.rate else self.reached <= wanted


def run(benchmark: Benchmark) -> Outcome:
    """Measure one benchmark."""
    try:
        return Outcome(benchmark=benchmark, reached=benchmark.measure())
    except NotRun as why:
        return Outcome(benchmark=benchmark, reached=None, why=str(why))


def cpu_seconds(work: Callable[[], object], *, runs: int = 7) -> float:
    """Least CPU time of several runs of this process: what other load on the machine adds is
    never negative.
    """
    collected = []
    for _ in range(runs):
        gc.collect()
        begin = time.process_time()
        work()
        collected.append(time.process_time() - begin)
    return min(collected)


def process_seconds(*arguments: str, runs: int = 3) -> float:
    """Least CPU time (user and system) of `parsim ARGUMENTS` as a process of its own.

    The first of the runs also compiles what it imports, which is kept for all others.

    Raises:
        NotRun: the command failed.
    """
    return min(_one_process(arguments) for _ in range(runs))


@cache
def _compiled() -> tempfile.TemporaryDirectory[str]:
    """A folder for compiled modules, which goes when the benchmarks end."""
    return tempfile.TemporaryDirectory(prefix="parsim-compiled-")


def _as_installed() -> dict[str, str]:
    """The environment of a process whose modules are compiled, as pip leaves a package."""
    kept = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": _compiled().name}


def _one_process(arguments: tuple[str, ...]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "parsim", *arguments],
        cwd=ROOT,
        env=_as_installed(),
        capture_output=True,
        text=True,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise NotRun(lines[-1])
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
