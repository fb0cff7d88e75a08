"""What a training says of each step while it runs.

A line is on disk before the next step begins, so a run that is killed leaves all its steps. Those
that are taken again after a restart are there again, with another `restart`.
"""

from __future__ import annotations

import datetime
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from executor.faults.messages import say
from executor.measure.steps import Step, known
from parsim.launch.news import STEPS
from parsim.report.text.measured.step_line import step_line


@dataclass(slots=True, kw_only=True)
class StepLog:
    """A run's log in its folder; `tokens` are those of a step, `steps` are to be taken.

    Of images a sample is one token (`samples`). Where workers have weights of their own the loss,
    the norm and the seconds are those of one `worker`.
    A disk that refuses a line gets no more of them, and `refused` says why; training goes on.
    """

    folder: Path
    tokens: int
    steps: int
    restart: int
    samples: bool = False
    worker: int | None = None
    refused: str = ""

    def add(self, step: Step, evaluation: float | None = None) -> None:
        """Write a step; the loss of an evaluation behind it, if there was one."""
        record = {**self._record(step), **({} if evaluation is None else evaluated(evaluation))}
        self._write(json.dumps(record, allow_nan=False))
        sys.stdout.write(f"{step_line(record)}\n")
        sys.stdout.flush()

    def _record(self, step: Step) -> dict[str, Any]:
        """A step as a line of the log; what the run does not have is left out."""
        device = step.device
        return {
            "step": step.number,
            "steps": self.steps,
            "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
            "restart": self.restart,
            "timed": step.timed,
            **({} if self.worker is None else {"worker": self.worker}),
            "loss": known(step.loss),
            "gradient_norm": known(step.gradient_norm),
            "learning_rate": step.learning_rate,
            **_scaling(step),
            "seconds": step.seconds,
            "tokens": self.tokens,
            **({"tokens_of_sample": 1} if self.samples else {}),
            "tokens_per_s": self.tokens / step.seconds,
            "peak_allocated_bytes": device.peak_allocated,
            "peak_reserved_bytes": device.peak_reserved,
            "resident_bytes": device.resident,
            "clock_hz": device.clock,
            "power_w": device.power,
            "core_product_s": device.core_product,
        }

    def _write(self, line: str) -> None:
        if self.refused:
            return
        path = self.folder / STEPS
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")
        except OSError as error:
            self.refused = f"cannot write {path}: {error.strerror or error}"
            say(f"note: {self.refused}; the training goes on without it")


def _scaling(step: Step) -> dict[str, Any]:
    """What is said of the loss's scale, in fp16."""
    if step.loss_scale is None:
        return {}
    return {"loss_scale": step.loss_scale, "skipped": step.skipped}


def evaluated(loss: float) -> dict[str, Any]:
    """What an evaluation adds to the record of its step."""
    return {"evaluation_loss": known(loss)}
