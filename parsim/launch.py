"""Starts the executor on this machine: one process per rank under torchrun.

parsim itself never imports torch or the executor; it starts them and reads what they wrote.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from parsim.errors import InputError, ParsimError


class RunError(ParsimError):
    """Ranks failed; the message ends with what the first of them said and where the log is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What `parsim run` was asked for, beside the plan."""

    out: Path
    overrides: Sequence[str] = ()
    steps: int = 10
    warmup: int = 3
    seed: int = 0
    timeout: float = 300.0
    data: Path | None = None
    device: str | None = None
    verify: bool = False
    oversubscribe: bool = False

    def arguments(self, scenario: Path) -> list[str]:
        """Arguments of `python -m executor`."""
        words = [str(scenario), f"--out={self.out}", f"--steps={self.steps}"]
        words += [f"--warmup={self.warmup}", f"--seed={self.seed}", f"--timeout={self.timeout}"]
        words += [f"--set={pair}" for pair in self.overrides]
        words += [f"--data={self.data}"] if self.data else []
        words += [f"--device={self.device}"] if self.device else []
        words += ["--verify"] if self.verify else []
        return words + (["--oversubscribe"] if self.oversubscribe else [])


def run_plan(scenario: Path, world_size: int, options: RunOptions) -> dict[str, Any]:
    """Run a scenario's plan and return the document that rank 0 wrote.

    Raises:
        InputError: torch is missing, or the executor refuses the plan or the machine.
        RunError: ranks failed while running.
    """
    if find_spec("torch") is None or find_spec("executor") is None:
        raise InputError(
            "running a plan needs torch, which is not installed; "
            "install it with: pip install parsim[executor]"
        )
    words = options.arguments(scenario)
    _check(words)
    document = options.out / "run.json"
    document.unlink(missing_ok=True)
    _torchrun(words, world_size, options)
    if not document.exists():
        raise RunError(f"the ranks ended, but wrote no {document}; see {options.out}/log.txt")
    found: dict[str, Any] = json.loads(document.read_text(encoding="utf-8"))
    return found


def _check(words: list[str]) -> None:
    """Let the executor refuse a plan before anything is launched."""
    command = [sys.executable, "-m", "executor", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=_environment())
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        raise InputError(lines[-1].removeprefix("error: ") if lines else done.stderr.strip())
    sys.stderr.write(done.stderr)


def _torchrun(words: list[str], world_size: int, options: RunOptions) -> None:
    options.out.mkdir(parents=True, exist_ok=True)
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
        *(f"--nproc-per-node={world_size}", "-m", "executor", *words),
    ]
    log = options.out / "log.txt"
    with log.open("w", encoding="utf-8") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, env=_environment(),
            start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait()
        finally:
            _end(process)
    if code:
        raise RunError(f"the ranks ended with exit code {code}: {_reason(log)}; see {log}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End torchrun and all its ranks, also when this process is interrupted."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _environment() -> dict[str, str]:
    """One thread a rank; gloo on the loopback device, since all ranks are on this machine."""
    quiet = {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    if sys.platform == "linux":
        quiet["GLOO_SOCKET_IFNAME"] = "lo"
    return {**quiet, **os.environ}


def _reason(log: Path) -> str:
    """The first error that a rank reported: later ones are its victims."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    told = [line for line in lines if "Error" in line or line.startswith("error: ")]
    return told[0].strip() if told else "no rank said why"
