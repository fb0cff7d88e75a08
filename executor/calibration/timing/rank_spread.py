"""How much the ranks of one machine differ.

Ranks that wait for each other at the end of a step wait for the slowest. Passes of whole layers
are timed on all ranks at once, so what their times differ by is seen on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log, sqrt
from statistics import fmean, median, variance

import torch
import torch.distributed as dist

from executor.calibration.choice.layer_tasks import LayerTask
from executor.calibration.timing.layers import LayerSample
from executor.calibration.timing.passes import BUSY

LEAST_TASKS = 3
"""Fewer say nothing of how often ranks differ."""
HELD_UP = 20.0
"""Times the median variance: of two normals 1 in 400 differs by more, three standard deviations."""


class RankSpread:
    """Gathers the logarithms of every rank's seconds, one task after the other."""

    def __init__(self, device: torch.device, *, devices: int) -> None:
        """Args: `devices` is the number of ranks that work; one alone has no spread."""
        self._device, self._working = device, devices
        self._logarithms: list[list[float]] = []

    def add(self, task: LayerTask, samples: Sequence[LayerSample], queued: float) -> None:
        """Note a task's seconds; to be called on all ranks.

        Left out are tasks in which ranks wait for each other, and those in which one waited for a
        core for more than the share BUSY (`queued` is this rank's): other processes did that.
        """
        if self._working < 2 or task.exchanges:
            return
        if not samples:  # a part that no rank has
            return
        mine = [log(max(samples[0].forward + samples[0].backward, 1e-9)), queued]
        ranks = _gathered(torch.tensor(mine, dtype=torch.float64, device=self._device))
        if max(share for _, share in ranks) <= BUSY:
            self._logarithms.append([logarithm for logarithm, _ in ranks[: self._working]])

    @property
    def value(self) -> float:
        """Standard deviation of a rank's seconds, as a share; 0 where too little was seen."""
        return spread_of(self._logarithms)


def _gathered(mine: torch.Tensor) -> list[list[float]]:
    """Every rank's values, (ranks, values)."""
    gathered = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, mine)
    return [values.tolist() for values in gathered]


def spread_of(logarithms: Sequence[Sequence[float]]) -> float:
    """The pooled standard deviation between ranks, of the logarithms of their seconds.

    The root of the mean of the tasks' variances: whatever tasks last, ranks did the same. Left out
    are tasks whose variance is above HELD_UP times the median: something else held a rank up.
    """
    if len(logarithms) < LEAST_TASKS:
        return 0.0
    variances = [variance(ranks) for ranks in logarithms]
    most = HELD_UP * median(variances)
    return sqrt(fmean(value for value in variances if value <= most))
