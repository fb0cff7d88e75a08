"""What all ranks of a pipeline with stages of their own agree on, and the words they share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from parsim.schedule.replicas import StageReplicas
from parsim.schedule.versions import Versions

Weights = list[torch.Tensor]
Update = Callable[[Weights, Weights], None]
"""Turns weights into the next ones in place, with a gradient."""

MicroBatches = Callable[[int], tuple[torch.Tensor, torch.Tensor]]
"""The input and the target of a micro-batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageOrder:
    """What every rank must agree on: replicas, forwards at the start, and when weights change.

    Without `versions` the pipeline flushes.
    """

    replicas: StageReplicas
    warmups: tuple[int, ...]
    versions: Versions | None = None

    @classmethod
    def of(cls, versions: Versions) -> StageOrder:
        """The order of a pipeline that never flushes."""
        return cls(replicas=versions.replicas, warmups=versions.warmups, versions=versions)

    def used(self, stage: int, microbatch: int) -> int:
        """The version of a micro-batch."""
        return self.versions.used(stage, microbatch) if self.versions else 0

    def made(self, stage: int, microbatch: int) -> int | None:
        """The version made behind a micro-batch's backward, if one is."""
        return self.versions.made(stage, microbatch) if self.versions else None
