"""Runs a plan on this machine: its ranks, and which of them failed first."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from parsim.errors import InputError, ParsimError, RunError
from parsim.launch.lock import locked
from parsim.launch.news import STEPS, News
from parsim.launch.nodes import meeting_name
from parsim.launch.options import RunOptions
from parsim.launch.ranks import ask, environment_of, python, require_torch, torchrun
from parsim.launch.watch import ended_by_signals, wait_for_end

RESULTS = ("run.json", "timeline.json", "predicted.json", "loss.png")
"""What a run writes beside its log, its steps and its checkpoints."""


@ended_by_signals()
def run_plan(
    scenario: Path,
    world_size: int,
    options: RunOptions,
    step: Callable[[Mapping[str, Any]], None] | None = None,
) -> dict[str, Any] | None:
    """Run a scenario's plan and return the document that rank 0 wrote; None if it was elsewhere.

    `step` gets the record of each step while the plan runs (executor/run/step_log.py).

    Raises:
        InputError: torch is missing, or the executor refuses the plan or the machine.
        RunError: ranks failed while running.
    """
    options.nodes.check_meeting()
    options.nodes.share(world_size)
    require_torch("running a plan")
    words = options.words(scenario)
    asked = ask("executor", words).stderr
    sys.stderr.write(asked)
    document = options.out / "run.json"
    with locked(options.out, meeting_of(words, options) if options.nodes.count > 1 else "") as lock:
        _fresh(options.out, resumed=options.resume)
        news = News(out=options.out, told=set(asked.splitlines()), step=step)
        if not _run_ranks(words, world_size, options, lock, news):
            return None
    if not document.exists():
        raise RunError(f"the ranks ended, but wrote no {document}; see {options.out}/log.txt")
    written: dict[str, Any] = json.loads(document.read_text(encoding="utf-8"))
    return written


def _fresh(out: Path, *, resumed: bool) -> None:
    """Forget what an earlier run left in the folder, but for the steps of one that goes on."""
    try:
        for name in RESULTS if resumed else (*RESULTS, STEPS):
            (out / name).unlink(missing_ok=True)
        (out / "log.txt").write_bytes(b"")
        _clear(out / "errors")
    except OSError as error:
        raise InputError(
            f"cannot write {error.filename or out}: {error.strerror}; "
            f"choose another folder with --out, or free space there"
        ) from None


def _run_ranks(
    words: list[str], world_size: int, options: RunOptions, lock: int, news: News
) -> bool:
    """Run this node's ranks; whether rank 0, which writes the results, was among them."""
    errors, log = options.out / "errors", options.out / "log.txt"
    name, timeout = meeting_of(words, options), options.timeout
    layout = options.nodes.torchrun_words(world_size, name=name, timeout=timeout)
    with tempfile.TemporaryDirectory(prefix="parsim-run-") as folder:
        wrote = Path(folder, "wrote")
        environment = {**environment_of(options.nodes), "PARSIM_WROTE": str(wrote)}
        code = torchrun(
            [*layout, *options.restarts],
            ["executor", *words],
            log,
            lambda process: wait_for_end(process, errors, options.max_restarts, news.tell),
            environment,
            keeps=[lock],
        )
        if code:
            raise _reason(world_size, options)
        here = wrote.exists()
    with suppress(OSError):
        _clear(errors)
    return here or options.nodes.count == 1


def meeting_of(words: list[str], options: RunOptions) -> str:
    """The run's name, alike on all nodes: its scenario by contents, for each has its own copy."""
    of_this_node = (words[0], f"--out={options.out}")
    shared = (word for word in words if word not in of_this_node)
    return meeting_name([Path(words[0]).read_text("utf-8"), *shared])


def _clear(errors: Path) -> None:
    """Delete what ranks left in a folder, and the folder if nothing else is in it."""
    for name in ("rank*.json", "rank*.step", "*.note"):
        for left in errors.glob(f"attempt*/{name}"):
            left.unlink(missing_ok=True)  # another node may be here first
    for folder in [*errors.glob("attempt*"), errors]:
        with suppress(OSError):
            folder.rmdir()


def _reason(world_size: int, options: RunOptions) -> ParsimError:
    """Name the rank that failed first: the others are its victims."""
    log, nodes = options.out / "log.txt", options.nodes
    if nodes.count > 1 and not any((options.out / "errors").glob("attempt*/rank*")):
        return RunError(
            f"no rank started: this node did not meet the others at {nodes.endpoint} within "
            f"--timeout={options.timeout:g} s; start the same command on all {nodes.count} nodes; "
            f"the full log is {log}"
        )
    words = [str(options.out), f"--ranks={world_size}", f"--timeout={options.timeout}"]
    done = python("executor.faults.diagnosis", words)
    if done.returncode:
        return RunError(f"the ranks failed; see {log}")
    diagnosis = json.loads(done.stdout)
    kind = InputError if diagnosis["exit_code"] == InputError.exit_code else RunError
    elsewhere = "; a rank of another node says why in the log there" if nodes.count > 1 else ""
    return kind(f"{diagnosis['message']}; the full log is {log}{elsewhere}")
