"""One rank of the suite: runs one case after another, as the suite writes them to its input.

An order is a line of JSON: `words` for `python -m executor`, the folder `out`, the `port` where the
ranks meet, a `backend` where the usual one cannot be used. The answer to each is a line `done`. A
rank that fails ends. Starting torch anew for each case would take longer than most of them run.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from executor.faults.parent import end_with_parent
from executor.faults.reports import HERE, fatal, finish
from parsim.launch.options import RunOptions, read_words


def main() -> int:
    """Take orders until the input ends."""
    end_with_parent()
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    for line in sys.stdin:
        order = json.loads(line)
        _write_to(Path(order["out"]) / "log.txt")
        os.environ["MASTER_PORT"] = str(order["port"])
        HERE.step, HERE.action = -1, "start"
        _run(order["words"], order["backend"])
        _forget()
        answer.write("done\n")
        answer.flush()
    return 0


def _run(words: Sequence[str], backend: str | None) -> None:
    from executor.run import command

    scenario, options = read_words(words)
    if backend is None:
        command.as_rank(scenario, options)  # ends this process where the case fails
    else:
        _staged(scenario, options, backend)


def _staged(scenario: Path, options: RunOptions, backend: str) -> None:
    """The plan over another backend than that of its devices, which the command does not offer."""
    rank = int(os.environ["RANK"])
    HERE.keep(options.out, rank)
    with fatal(options.out, rank):
        from executor.devices.machine import probe
        from executor.run.run import run
        from parsim.scenario import load_scenario

        report = replace(probe(options.device), backend=backend, shareable=True)
        run(load_scenario(scenario), report, options)


def _write_to(log: Path) -> None:
    """What this process prints from now on belongs to the case."""
    log.parent.mkdir(parents=True, exist_ok=True)
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    for number in (1, 2):
        os.dup2(target, number)
    os.close(target)


def _forget() -> None:
    """Give back what the case held, so that the next one finds the device as the first one did."""
    gc.collect()
    if "torch" not in sys.modules:
        return
    import torch

    from executor.devices.accelerator import accelerator, in_use

    left = accelerator(torch.device("cuda")).release() if in_use() else None
    if left is not None:
        sys.stdout.write(f"still allocated after the case: {left:.0f} bytes\n")
        sys.stdout.flush()


if __name__ == "__main__":
    finish(main())
