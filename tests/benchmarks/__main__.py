"""Demanded and reached speed: `python -m tests.benchmarks [--only WORD] [--report FILE.md]`."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from itertools import chain
from pathlib import Path

# one thread, here and in the processes; must be set before numpy is imported
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"

from tests.benchmarks.commands import commands  # noqa: E402
from tests.benchmarks.engines import engines  # noqa: E402
from tests.benchmarks.flows import flows  # noqa: E402
from tests.benchmarks.measure import Benchmark, Outcome, run  # noqa: E402
from tests.benchmarks.runtime import runtime  # noqa: E402
from tests.benchmarks.searches import searches  # noqa: E402

HEAD = """# Benchmarks

Least CPU time of several runs, one thread; a command is a process of its own and its time includes
the start of Python, with modules compiled as pip leaves them. The executor is compared with torch
by the least of alternating steps. Repeat with

    .venv/bin/python -m tests.benchmarks --report reports/benchmarks.md

"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks, print the table, write the report."""
    options = _options(arguments)
    chosen = [
        b
        for b in chain(engines(), flows(), commands(), searches(), runtime())
        if options.only in b.name
    ]
    outcomes = []
    for number, benchmark in enumerate(chosen, start=1):
        print(f"{number}/{len(chosen)} {benchmark.name}", file=sys.stderr)
        outcomes.append(run(benchmark))
    table = "\n".join(rows(outcomes))
    print(table)
    if options.report is not None:
        facts = "\n".join(f"- {fact}" for fact in machine())
        options.report.write_text(f"{HEAD}{facts}\n\n{table}\n", encoding="utf-8")
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--only", default="", metavar="WORD", help="run rows whose name has WORD")
    parser.add_argument("--report", type=Path, metavar="FILE.md", help="also write Markdown")
    return parser.parse_args(arguments)


def rows(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """A Markdown table; columns as wide as their widest cell."""
    cells = [("what", "demand", "reached", "met"), *map(_cells, outcomes)]
    widths = [max(len(row[i]) for row in cells) for i in range(4)]
    align = ("<", ">", ">", "<")
    for number, row in enumerate(cells):
        padded = (f"{c:{a}{w}}" for c, a, w in zip(row, align, widths, strict=True))
        yield f"| {' | '.join(padded)} |"
        if number == 0:
            rules = (
                "-" * w if a == "<" else "-" * (w - 1) + ":"
                for a, w in zip(align, widths, strict=True)
            )
            yield f"| {' | '.join(rules)} |"


def _cells(outcome: Outcome) -> tuple[str, str, str, str]:
    benchmark = outcome.benchmark
    sign = ">=" if benchmark.rate else "<="
    demand = f"{sign} {amount(benchmark.demand, benchmark)}"
    if outcome.reached is None:
        return benchmark.name, demand, "not run", outcome.why
    return (
        benchmark.name,
        demand,
        amount(outcome.reached, benchmark),
        "yes" if outcome.met else "NO",
    )


def amount(value: float, benchmark: Benchmark) -> str:
    """A rate with thousands separated, seconds to three digits, or a ratio."""
    if benchmark.unit == "times":
        return f"{value:.3f} times"
    if benchmark.rate:
        return f"{value:,.0f} {benchmark.unit}"
    return f"{value:.3g} s" if value >= 0.1 else f"{1e3 * value:.3g} ms"


def machine() -> Iterator[str]:
    """What the numbers were measured on."""
    yield f"processor: {_processor()}, {os.cpu_count()} visible"
    yield f"system: {platform.system()} {platform.machine()}"
    yield f"{platform.python_implementation()} {platform.python_version()}"
    yield from (f"{name} {version(name)}" for name in ("numpy", "simpy", "matplotlib"))


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
