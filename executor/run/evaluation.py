"""The loss of text that is not trained on, every so many steps.

The same batches each time, without dropout. A batch runs as in training, its backward too, so that
every plan and schedule can do it; gradients are forgotten, and no weight or generator changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

import torch

from executor.faults.reports import HERE
from executor.measure.steps import Batch, mean_over_ranks
from executor.training.trainer import Trainer

BATCHES = 4
"""Global batches of an evaluation."""


@dataclass(slots=True, kw_only=True)
class Evaluation:
    """Evaluates `every` so many steps (0: never) with this rank's parts of some `batches`.

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
        stages = [replica.module for replica in self.trainer.replicas]
        for stage in stages:
            stage.eval()
        means = [self._loss(batch) for batch in self.batches]
        for stage in stages:
            stage.train()
        self.trainer.optimizer.zero_grad()
        self.losses[taken] = fmean(means)
        return self.losses[taken]

    def _loss(self, batch: Batch) -> float:
        return mean_over_ranks(self.trainer.gradients(*batch), self.device)
