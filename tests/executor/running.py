"""`parsim run` in the background, for tests that end its processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from executor.checkpoint.folder import step_of, whole
from tests.commands import heard_signals

ROOT = Path(__file__).parents[2]
SCENARIO = """
description: a tiny GPT-2 on two CPU ranks
model: {name: gpt2, num_layers: 4, hidden_size: 64, num_attention_heads: 4,
        num_key_value_heads: 4, head_dim: 16, ffn_hidden_size: 128, vocab_size: 256,
        seq_len: 32, positions: 32}
cluster: {system: cpu, nodes: 1}
software: executor-cpu
training: {global_batch_size: 8, precision: fp32}
plan: {pp: 2, microbatch_size: 2, schedule: 1f1b}
"""
MIXTURE = """
description: a tiny Mixtral on two CPU ranks, its router's gradient mostly that of the balance
model: {name: mixtral-8x7b, num_layers: 2, hidden_size: 32, num_attention_heads: 4,
        num_key_value_heads: 2, head_dim: 8, ffn_hidden_size: 64, num_experts: 4,
        experts_per_token: 2, expert_ffn_hidden_size: 24, vocab_size: 256, seq_len: 16,
        router_aux_loss_coef: 5.0}
cluster: {system: cpu, nodes: 1}
software: executor-cpu
training: {global_batch_size: 8, precision: fp32, clip: 0}
plan: {plan}
"""
"""A scenario without a plan, which takes the place of {plan}."""


class Run:
    """`parsim run` in the background, and the processes that belong to it."""

    def __init__(
        self, folder: Path, *words: str, scenario: str = SCENARIO, **variables: str
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.out = folder / "out"
        (folder / "tiny.yaml").write_text(scenario)
        command = [sys.executable, "-m", "parsim", "run", str(folder / "tiny.yaml")]
        with heard_signals():
            self.process = subprocess.Popen(
                [*command, "--out", str(self.out), "--warmup", "0", *words],
                cwd=ROOT,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, **variables},
            )

    def left(self) -> list[int]:
        """Living processes with the folder in their command line."""
        wanted = str(self.out).encode()
        return [pid for pid in pids() if wanted in read(pid, "cmdline")]

    def rank(self, number: int, attempt: int = 0) -> int:
        """The process of a rank that has taken at least two steps."""
        self.until(lambda: self.step(number, attempt) >= 2)
        wanted = {b"RANK=%d" % number, b"TORCHELASTIC_RESTART_COUNT=%d" % attempt}
        return next(pid for pid in self.left() if wanted <= set(read(pid, "environ").split(b"\0")))

    def step(self, number: int, attempt: int = 0) -> int:
        """The step that a rank is at, -1 before the first."""
        step_file = self.out / "errors" / f"attempt{attempt}" / f"rank{number}.step"
        return int((step_file.read_text().split() or ["-1"])[0]) if step_file.exists() else -1

    def checkpoint(self, after: int) -> int:
        """The step of a whole checkpoint past a step, once there is one."""

        def newest() -> int:
            return max(map(step_of, whole(self.out / "checkpoints")), default=0)

        self.until(lambda: newest() > after)
        return newest()

    def until(self, happened: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 240.0
        while not happened():
            assert time.monotonic() < deadline, "not within 240 s"
            assert self.process.poll() is None, f"ended too early: {self.process.communicate()[1]}"
            time.sleep(0.01)

    def end(self, timeout: float) -> tuple[int, list[str]]:
        """Exit code and the lines of stderr, within `timeout` seconds; nothing is left."""
        _, told = self.process.communicate(timeout=timeout)
        assert "Traceback" not in told
        assert _gone(self), f"still running: {self.left()}"
        return self.process.returncode, told.strip().splitlines()

    def kill(self) -> None:
        """End whatever is left."""
        for pid in [*self.left(), self.process.pid]:
            if self.process.returncode is None or pid != self.process.pid:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.process.wait(30)
        if self.process.stderr is not None:
            self.process.stderr.close()


def pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _gone(run: Run) -> bool:
    deadline = time.monotonic() + 15.0
    while run.left() and time.monotonic() < deadline:
        time.sleep(0.1)
    return not run.left()


Start = Callable[..., Run]
"""Starts a run with options of the command line."""
