"""Runs many inputs: `python -m tests.fuzz [--inputs N] [--seed S] [--minutes M] [--kind K]`.

Each worker is a process with a limit of memory; it runs its inputs one after the other. A worker
that dies or hangs is replaced, and its input reported. `--number I` runs that one alone, without
catching anything, and `--show` prints it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

# one thread; must be set before numpy is imported
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"

from tests.commands import ROOT  # noqa: E402
from tests.fuzz.judge import emptied, judged, made, prepare  # noqa: E402
from tests.fuzz.targets import ALONE, TARGETS  # noqa: E402

SECONDS = 20.0
"""CPU seconds that an input may take."""

MEMORY = 2 << 30
"""Bytes that a process may have of its own."""

HANGS = 15 * SECONDS
"""Seconds without a word after which a worker counts as hung, other load on the machine too."""


def asked() -> argparse.Namespace:
    """The options of the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument(
        "--kind", choices=[*TARGETS, *ALONE], metavar="K", help="inputs of this kind alone"
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--number", type=int, help="run this input alone")
    parser.add_argument("--show", action="store_true", help="print that input, do not run it")
    parser.add_argument("--work", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def limit_memory() -> None:
    """Let an allocation beyond the limit fail, where the system can."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    except (ImportError, ValueError, OSError):
        sys.stderr.write("note: this system cannot limit memory\n")


def work(options: argparse.Namespace) -> None:
    """Run every so-many-th input and write a line about each."""
    limit_memory()
    prepare()
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    with tempfile.TemporaryDirectory(prefix="parsim-fuzz-") as folder:
        os.chdir(folder)
        for number in range(options.work, options.first + options.inputs, options.workers):
            emptied(Path(folder))
            answer.write(f"{number}\n")
            answer.flush()
            kind, given = made(options.seed, number, options.kind)
            began = time.process_time()
            wrong = judged(given, SECONDS)
            took = time.process_time() - began
            answer.write(f"{number}\t{kind}\t{took:.3f}\t{wrong!r}\n")
            answer.flush()


class Tally:
    """What the workers have told so far."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.wrong: list[tuple[int, str, str]] = []
        self.slowest = (0.0, -1)

    def add(self, number: int, kind: str, took: float, wrong: str) -> None:
        """One input is done; a wrong one is told at once."""
        self.kinds[kind] += 1
        self.slowest = max(self.slowest, (took, number))
        if wrong != "None":
            self.wrong.append((number, kind, wrong))
            sys.stdout.write(f"{number} ({kind}): {wrong}\n")
            sys.stdout.flush()


def follow(options: argparse.Namespace, index: int, until: float, tally: Tally) -> None:
    """Keep one worker going until its inputs or the time are at an end."""
    number = options.first + index
    while number < options.first + options.inputs and time.monotonic() < until:
        worker = _started(options, number)
        number = _heard(worker, number, until, tally)
        if time.monotonic() < until and number < options.first + options.inputs:
            tally.add(number, options.kind or "?", 0.0, "the process died or hung")
        number += options.workers


def _started(options: argparse.Namespace, number: int) -> subprocess.Popen[str]:
    """A worker that begins with this input."""
    words = [
        f"--{name}={getattr(options, name)}" for name in ("inputs", "first", "seed", "workers")
    ]
    words += [f"--kind={options.kind}"] if options.kind else []
    command = [sys.executable, "-m", "tests.fuzz", *words, f"--work={number}"]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


def _heard(worker: subprocess.Popen[str], number: int, until: float, tally: Tally) -> int:
    """Listen to a worker; the number of the input that it was at when it ended."""
    heard = [time.monotonic()]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(1.0):
            now = time.monotonic()
            if now > until or now - heard[0] > HANGS:
                worker.kill()

    watcher = threading.Thread(target=watch)
    watcher.start()
    ended = False
    for line in worker.stdout or ():
        heard[0] = time.monotonic()
        fields = line.rstrip("\n").split("\t", 3)
        number, ended = int(fields[0]), len(fields) == 4
        if ended:
            tally.add(number, fields[1], float(fields[2]), fields[3])
    code = worker.wait()
    done.set()
    watcher.join()
    return sys.maxsize // 2 if ended and code == 0 else number


def run_all(options: argparse.Namespace) -> int:
    """Run all inputs on several workers; whether any went wrong."""
    tally, began = Tally(), time.monotonic()
    until = began + 60.0 * options.minutes
    threads = [
        threading.Thread(target=follow, args=(options, index, until, tally))
        for index in range(options.workers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    count, minutes = sum(tally.kinds.values()), (time.monotonic() - began) / 60.0
    kinds = ", ".join(f"{name} {number}" for name, number in sorted(tally.kinds.items()))
    sys.stdout.write(
        f"{count} inputs of seed {options.seed} in {minutes:.1f} minutes ({kinds}); "
        f"{len(tally.wrong)} went wrong; the slowest took {tally.slowest[0]:.1f} s of CPU "
        f"(number {tally.slowest[1]})\n"
    )
    for number, kind, _ in tally.wrong:
        again = f"python -m tests.fuzz --seed {options.seed} --number {number}"
        sys.stdout.write(f"again: {again}{f' --kind {kind}' if options.kind else ''}\n")
    return 1 if tally.wrong else 0


def run_one(options: argparse.Namespace) -> int:
    """Run one input in a folder of its own, or show it."""
    with tempfile.TemporaryDirectory(prefix="parsim-fuzz-") as folder:
        os.chdir(folder)
        kind, given = made(options.seed, options.number, options.kind)
        sys.stdout.write(f"{kind}: parsim {' '.join(map(repr, given.words))}\n")
        for name, content in given.files.items() if options.show else ():
            sys.stdout.write(
                f"--- {name}\n{content if isinstance(content, str) else repr(content)}\n"
            )
        wrong = None if options.show else judged(given, SECONDS)
        os.chdir(ROOT)
    if options.show:
        return 0
    sys.stdout.write(f"{wrong or 'nothing is wrong'}\n")
    return 1 if wrong else 0


def main() -> int:
    """Work, run one, or run all."""
    options = asked()
    if options.work is not None:
        work(options)
        return 0
    return run_all(options) if options.number is None else run_one(options)


if __name__ == "__main__":
    sys.exit(main())
