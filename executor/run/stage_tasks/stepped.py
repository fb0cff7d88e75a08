"""When the batches of a pipeline that is run task by task ended on its ranks, and their losses."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import torch
import torch.distributed as dist

from executor.pipeline.stage_run import StageRank
from executor.strategies.replays.log import Ended


@dataclass(slots=True)
class Stepped:
    """What one rank saw: when each of its batches ended, and losses by micro-batch."""

    ends: list[float] = field(default_factory=list)
    losses: dict[int, float] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class BatchEnds:
    """Notes the ends of this rank's batches of `count` micro-batches.

    On the last stage, whose ranks alone know losses, `told` hears of each.
    """

    rank: StageRank
    count: int
    told: Callable[[Ended], None]
    stepped: Stepped = field(default_factory=Stepped)

    def add(self, seconds: float, norm: float = math.nan) -> None:
        """Note that a batch is over, whose losses are known here; all ranks of a stage call it."""
        self.stepped.ends.append(seconds)
        if self.rank.last:
            step = len(self.stepped.ends) - 1
            self.told(Ended(step, seconds, self._loss(step), norm))

    def _loss(self, step: int) -> float:
        """Mean loss of a batch, of which each replica of the stage has some micro-batches."""
        batch = range(step * self.count, (step + 1) * self.count)
        here = sum(self.stepped.losses.get(mb, 0.0) for mb in batch)
        total = torch.tensor(here, dtype=torch.float64)
        if self.rank.count > 1:
            dist.all_reduce(total, group=self.rank.sums.sharers)
        return float(total) / self.count


def rounds_of(stepped: Sequence[Stepped], count: int) -> list[Ended]:
    """When each batch ended on the last of its ranks, with its mean loss."""
    losses = {mb: loss for rank in stepped for mb, loss in rank.losses.items()}
    ends = [max(times) for times in zip(*(rank.ends for rank in stepped), strict=True)]
    return [
        Ended(step, end, fmean(losses[step * count + mb] for mb in range(count)), math.nan)
        for step, end in enumerate(ends)
    ]
