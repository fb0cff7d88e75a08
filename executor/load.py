"""How evenly tokens spread over the ranks that share a layer's experts, in one step.

Predictions take the load to be even, or the stack's `expert_imbalance`: all wait for the busiest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import fmean
from typing import Any

import torch.distributed as dist

from executor.experts import Mixture
from executor.train import Trainer

Rows = dict[str, list[int]]
"""A layer's path to the rows that a rank's experts worked on in each forward of a step."""


def watched(trainer: Trainer, step: Callable[[], object]) -> Rows | None:
    """Take a step and count; None where no experts are spread over ranks."""
    if trainer.experts is None or trainer.experts.exchange is None:
        step()
        return None
    mixtures = _mixtures(trainer)
    for mixture in mixtures.values():
        mixture.received = []
    step()
    return {path: mixture.received or [] for path, mixture in mixtures.items()}


def _mixtures(trainer: Trainer) -> dict[str, Mixture]:
    return {
        path: mixture
        for replica in trainer.replicas
        for path, mixture in replica.stage.mixtures().items()
    }


def expert_load(trainer: Trainer, rows: Rows | None, assumed: float) -> dict[str, float] | None:
    """Rows of the busiest rank over the mean of those that share its experts.

    The mean over layers and micro-batches, and the worst of them. Every rank must call it.
    """
    if rows is None or trainer.experts is None or trainer.experts.exchange is None:
        return None
    group = trainer.experts.exchange
    sharing: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(sharing, rows, group=group)
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, list(_ratios(sharing)))
    ratios = [ratio for own in every for ratio in own]
    if not ratios:
        return None
    return {"mean": fmean(ratios), "max": max(ratios), "assumed": assumed}


def _ratios(sharing: list[Rows]) -> Iterable[float]:
    """Of each layer and forward the busiest rank over the mean."""
    for path in sharing[0]:
        for counts in zip(*(rows[path] for rows in sharing), strict=True):
            yield max(counts) / fmean(counts)
