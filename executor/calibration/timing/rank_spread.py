"""What ranks of one machine lose to one another, and how much they differ.

Ranks that wait for each other at the end of a step wait for the slowest. Passes of whole layers
are timed on all ranks at once, so what their times differ by is seen on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log, sqrt
from statistics import fmean, median, variance

import torch
import torch.distributed as dist

from executor.calibration.cases import kinds
from executor.calibration.cases.workloads import update_case
from executor.calibration.choice.layer_tasks import LayerTask
from executor.calibration.timing.bench import Bench
from executor.calibration.timing.layers import LayerSample
from executor.calibration.timing.passes import BUSY
from parsim.cluster.fields import MOST_CONTENTION

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


PARAMETERS = 1 << 23
"""Their weights, gradients and states are 128 MiB: more than the caches hold."""
ROUNDS = 9


def memory_contention(bench: Bench) -> float:
    """By what share updates on all ranks at once are longer than one on rank 0 alone.

    Cores of one machine share its memory, and an update does little but move bytes. Each of the
    other calibrated kernels counts at its least, so at a moment when the others left the memory
    alone; what they lose together is seen in whole layers. A step's update is no layer, and all
    ranks come to it together, behind the gradients' norm.

    To be called on all ranks, at least two. 0 where a device has memory of its own.
    """
    if bench.device.type != "cpu":
        return 0.0
    case = update_case(kinds.OPTIMIZER, 0.0, PARAMETERS)
    update = bench.operators.build(case)()
    alone = update if dist.get_rank() == 0 else None
    return growth(*bench.slowest_of((alone, update), ROUNDS))


def growth(alone: float, together: float) -> float:
    """The share above, from both times."""
    return min(max(together / alone - 1.0, 0.0), MOST_CONTENTION)
