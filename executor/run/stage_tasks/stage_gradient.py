"""A batch's gradient of a stage: summed over its replicas and a table's two ends, and clipped."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import nn

from executor.pipeline.stage_groups import StageGroups, Weights
from executor.pipeline.stage_run import StageRank
from executor.training.norm import clip_factor, parts_of, square_sum


class StageGradient:
    """What the ranks of a stage do with a batch's gradient before its update.

    The `norm` is that of the whole model's gradient before it is clipped, NaN where it is not.
    `tied` are the parameters of a table that the first and the last stage both have.
    """

    def __init__(
        self,
        rank: StageRank,
        tied: Sequence[nn.Parameter],
        groups: StageGroups,
        *,
        clip: float,
    ) -> None:
        self._rank, self._tied, self._clip = rank, tied, clip
        self._groups, self.norm = groups, math.nan

    def whole(self, gradient: Weights) -> Weights:
        """A batch's gradient of this stage: summed over its replicas, and a table's two ends."""
        for part in gradient if self._rank.count > 1 else []:
            dist.all_reduce(part, group=self._groups.sharers)
        for part in self._shared(gradient):
            part /= self._rank.count
            dist.all_reduce(part, group=self._groups.ends)
        return gradient

    def _shared(self, gradient: Weights) -> Weights:
        """The parts of a gradient that another stage has too: those of a tied table."""
        pairs = zip(self._rank.weights.parameters, gradient, strict=True)
        tied = {id(table) for table in self._tied}
        return [part for parameter, part in pairs if id(parameter) in tied]

    def clipped(self, gradient: Weights) -> Weights:
        """The gradient scaled down to the norm that the scenario asks for, in place."""
        if not self._clip:
            return gradient
        shared, squares = self._shared(gradient), 0.0
        for parameter, part in zip(self._rank.weights.parameters, gradient, strict=True):
            holders = self._rank.width // parts_of(parameter)
            counts = 0.5 if any(part is other for other in shared) else 1.0
            squares += counts / holders * float(square_sum([part]))
        whole = torch.tensor(squares / self._rank.count, dtype=torch.float64)
        dist.all_reduce(whole)
        self.norm = float(whole.sqrt())
        factor = float(clip_factor(whole.sqrt().float(), self._clip))
        for part in gradient:
            part *= factor
        return gradient
