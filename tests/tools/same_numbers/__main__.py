"""Proves that a refactor leaves every predicted number as it was.

    python -m tests.tools.same_numbers record OUT_DIR [--tree DIR] [--only PATTERN] [--quick]
                                                      [--minutes N] [--like DIR]
    python -m tests.tools.same_numbers compare BEFORE_DIR AFTER_DIR [--rtol 1e-12]

Usually both are short, `record --quick` and `compare --partial`, against a whole recording of the
checkout before the refactor; the whole set takes some minutes on two cores that do nothing else.
Where others use them too, `record BEFORE --minutes 10` begins no case after that time, the short
run's first and then the cheap ones, and `record AFTER --like BEFORE` runs just those cases.

`record` runs the command line of a checkout on several hundred cases and writes what each printed
to a file of its own; `compare` lays two such folders side by side and ends with 1 where they
differ. Nothing here imports parsim: both ends of a refactor are run by the same tool.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from queue import Empty, Queue

from tests.tools.same_numbers.case import INPUTS, Case
from tests.tools.same_numbers.cases import cheap_first, chosen_cases
from tests.tools.same_numbers.compare import Options, compare_folders, read_cases

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = Path(__file__).with_name("worker.py")
READY = "ready"
INLINE = 40_000
"""Characters up to which a timeline is recorded in full beside its hash."""

QUIET = {
    "COLUMNS": "160",
    "MPLBACKEND": "Agg",
    "NO_COLOR": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONIOENCODING": "utf-8",
    "SOURCE_DATE_EPOCH": "0",
    "TERM": "dumb",
}
"""What a command's output must not depend on is the same in every recording."""


class Recording:
    """Cases that are being run by several workers, each a process of its own."""

    def __init__(
        self,
        tree: Path,
        out: Path,
        cases: Sequence[Case],
        *,
        inline: int,
        seconds: float = math.inf,
    ) -> None:
        self.tree = tree
        self.out = out
        self.inline = inline
        self.end = time.perf_counter() + seconds
        self.seconds: dict[str, float] = {}
        self.queue: Queue[Case] = Queue()
        for case in cases:
            self.target(case).unlink(missing_ok=True)  # of an earlier recording
            self.queue.put(case)

    def run(self, workers: int) -> None:
        """Run all cases; a manifest says how long each took."""
        threads = [threading.Thread(target=self.work) for _ in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        manifest = {"tree": str(self.tree), "seconds": dict(sorted(self.seconds.items()))}
        write_json(self.out / "manifest.json", manifest)

    def work(self) -> None:
        """One worker: case after case, with a new process where one has died."""
        process = self.process()
        while process is not None and (case := self.next_case()) is not None:
            if not self.record(case, process):
                crash: dict[str, object] = {"crash": process.wait(), "commands": {}, "files": {}}
                write_json(self.target(case), crash)
                process = self.process()
        if process is not None:
            process.communicate()

    def next_case(self) -> Case | None:
        """The next case that nobody has begun; None where there is none, or no time."""
        if time.perf_counter() > self.end:
            return None
        try:
            return self.queue.get_nowait()
        except Empty:
            return None

    def record(self, case: Case, process: subprocess.Popen[str]) -> bool:
        """Hand one case to a worker and wait; False where the worker ended instead."""
        assert process.stdin is not None
        order = {"commands": case.commands, "inputs": INPUTS, "target": str(self.target(case))}
        try:
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            return False
        answer = answered(process)
        if answer:
            self.seconds[case.id] = float(answer)
        return bool(answer)

    def process(self) -> subprocess.Popen[str] | None:
        """A worker, started in the checkout whose parsim it runs; None where it does not start."""
        process = subprocess.Popen(
            [sys.executable, str(SCRIPT), str(self.tree), str(self.inline)],
            cwd=self.tree,
            env=os.environ | QUIET | {"PYTHONPATH": str(self.tree)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return process if answered(process) == READY else None

    def target(self, case: Case) -> Path:
        """The file of one case."""
        return self.out / f"{case.id}.json"


def answered(process: subprocess.Popen[str]) -> str:
    """The next line of a worker; empty where it has ended."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def write_json(path: Path, document: object) -> None:
    """Write a document, with its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def record(arguments: argparse.Namespace) -> int:
    """The verb `record`."""
    cases = chosen_cases(arguments.only, quick=arguments.quick)
    if arguments.like is not None:
        recorded = read_cases(arguments.like, None)
        cases = [case for case in cases if case.id in recorded]
    if arguments.minutes is not None:
        cases = cheap_first(cases)
    began = time.perf_counter()
    inline = sys.maxsize if arguments.full else INLINE
    limit = math.inf if arguments.minutes is None else 60.0 * arguments.minutes
    tree, out = arguments.tree.resolve(), arguments.out.resolve()
    recording = Recording(tree, out, cases, inline=inline, seconds=limit)
    recording.run(arguments.workers)
    left = recording.queue.qsize()
    failed = len(cases) - left - len(recording.seconds)
    late = f", {left} not begun in time" if left else ""
    sys.stdout.write(
        f"{len(cases) - left} cases of {tree} recorded in {out}, {failed} failed{late}, "
        f"{time.perf_counter() - began:.0f} s\n"
    )
    return int(failed > 0)


def compare(arguments: argparse.Namespace) -> int:
    """The verb `compare`."""
    options = Options(
        rtol=arguments.rtol,
        only=arguments.only,
        partial=arguments.partial,
        ignored=frozenset(arguments.ignore),
        most=arguments.most,
    )
    return compare_folders(arguments.before, arguments.after, options)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="python -m tests.tools.same_numbers")
    verbs = top.add_subparsers(required=True)
    verb = verbs.add_parser("record", help="run the cases of a checkout")
    verb.add_argument("out", type=Path)
    verb.add_argument("--tree", type=Path, default=ROOT, help="checkout; default: this one")
    verb.add_argument("--only", metavar="PATTERN", help="part of an id, or a glob")
    verb.add_argument("--quick", action="store_true", help="the short run")
    verb.add_argument("--minutes", type=float, metavar="N", help="begin no case after so long")
    verb.add_argument("--like", type=Path, metavar="DIR", help="the cases that DIR holds only")
    verb.add_argument("--full", action="store_true", help="keep all timelines, not their hashes")
    verb.add_argument("--workers", type=int, default=2)
    verb.set_defaults(run=record)
    verb = verbs.add_parser("compare", help="lay two recordings side by side")
    verb.add_argument("before", type=Path)
    verb.add_argument("after", type=Path)
    verb.add_argument("--rtol", type=float, default=0.0, help="largest relative rounding")
    verb.add_argument("--only", metavar="PATTERN", help="part of an id, or a glob")
    verb.add_argument("--partial", action="store_true", help="AFTER holds only some of the cases")
    verb.add_argument(
        "--ignore",
        metavar="KEY",
        action="append",
        default=[],
        help="a key that may differ, come or go; repeatable",
    )
    verb.add_argument("--most", type=int, default=8, help="differences printed of a case")
    verb.set_defaults(run=compare)
    return top


def main(words: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit code."""
    arguments = parser().parse_args(words)
    code: int = arguments.run(arguments)
    return code


if __name__ == "__main__":
    raise SystemExit(main())
