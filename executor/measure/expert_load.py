"""How evenly tokens spread over the ranks that share a layer's experts, in one step.

Predictions take the load to be even, or the stack's `expert_imbalance`: all wait for the busiest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import fmean

from executor.devices.all_ranks import gathered
from executor.training.trainer import Trainer

Rows = dict[str, list[int]]
"""A layer's path to the rows that a rank's experts worked on in each forward of a step."""


def watched(trainer: Trainer, step: Callable[[], object]) -> Rows | None:
    """Take a step and count; None where no experts are spread over ranks."""
    if trainer.experts is None or trainer.experts.exchange is None:
        step()
        return None
    mixtures = {
        path: mixture
        for replica in trainer.replicas
        for path, mixture in replica.stage.mixtures().items()
    }
    for mixture in mixtures.values():
        mixture.received = []
    step()
    return {path: mixture.received or [] for path, mixture in mixtures.items()}


def expert_load(trainer: Trainer, rows: Rows | None, assumed: float) -> dict[str, float] | None:
    """Rows of the busiest rank over the mean of those that share its experts.

    The mean over layers and micro-batches, and the worst of them. Every rank must call it.
    """
    if rows is None or trainer.experts is None or trainer.experts.exchange is None:
        return None
    every = gathered(list(_ratios(gathered(rows, trainer.experts.exchange))))
    ratios = [ratio for ratios_of_rank in every for ratio in ratios_of_rank]
    if not ratios:
        return None
    return {"mean": fmean(ratios), "max": max(ratios), "assumed": assumed}


def _ratios(sharing: list[Rows]) -> Iterable[float]:
    """Load of the busiest rank over the mean, for each layer and forward."""
    for path in sharing[0]:
        for counts in zip(*(rows[path] for rows in sharing), strict=True):
            yield max(counts) / fmean(counts)
