"""The loss of text or images that are not trained on, now and then while a training runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

import torch

from executor.faults.reports import HERE
from executor.measure.steps import mean_over_ranks
from executor.model.loss import Batch
from executor.training.trainer import Trainer

BATCHES = 4
"""Global batches of an evaluation."""


@dataclass(slots=True, kw_only=True)
class Evaluation:
    """Evaluates `every` so many steps (0: never) with this rank's parts of some `batches`.

    The same batches each time, forwards alone and without dropout: under a pipeline those of the
    plan's own schedule. No weight or generator changes; gradients of the last step may be
    forgotten.

    `losses` holds what came out, by the number of steps that were taken before.
    """

    every: int
    trainer: Trainer
    device: torch.device
    batches: Sequence[Batch]
    losses: dict[int, float] = field(default_factory=dict)

    def after_step(self, taken: int) -> float | None:
        """The mean loss after so many steps, if it is time to evaluate; every rank must call it."""
        if not self.every or taken % self.every:
            return None
        HERE.enter("evaluate", taken)
        every = self.trainer.evaluate(self.batches)
        means = [mean_over_ranks(losses, self.device) for losses in every]
        self.losses[taken] = fmean(means)
        return self.losses[taken]
