"""What ranks of one machine lose to one another: compute, messages and updates that meet.

Cores of one machine share more than they tell, and not always as much: on two cores of a virtual
machine, updates on both at once took 1.7 times as long as on one at some times and no longer at
others, each for seconds to minutes (two cores of one chiplet would share its way to the memory; who
is where is not told). So a calibration looks several times.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch.distributed as dist

from executor.calibration.cases import kinds
from executor.calibration.cases.workloads import update_case
from executor.calibration.timing.bench import Bench
from executor.calibration.timing.interference import (
    ROUNDS,
    growth,
    interference,
    message_interference,
    two_way_loss,
)
from parsim.cluster.fields import LIMITS


class Losses(NamedTuple):
    """Shares that are lost, as `parsim.cluster.hardware.System` has them under these names.

    Of one moment they are as they were measured, and may be below 0 or above what is possible.
    """

    interference: float
    message_interference: float
    memory_contention: float
    two_way_loss: float


def losses(bench: Bench) -> Losses:
    """All of them at this moment; to be called on all ranks, at least two."""
    return Losses(
        interference=interference(bench),
        message_interference=message_interference(bench),
        memory_contention=memory_contention(bench),
        two_way_loss=two_way_loss(bench),
    )


MOST_LOSSES = Losses(
    1.0, 1.0, memory_contention=LIMITS["slowing"].high, two_way_loss=LIMITS["slowing"].high
)
"""What an exchange takes from compute beside it is at most its own time."""


def mean_losses(moments: Sequence[Losses]) -> Losses | None:
    """The mean of several moments, from 0 to MOST_LOSSES; None without any."""
    if not moments:
        return None
    means = (sum(shares) / len(moments) for shares in zip(*moments, strict=True))
    return Losses(
        *(min(max(mean, 0.0), most) for mean, most in zip(means, MOST_LOSSES, strict=True))
    )


PARAMETERS = 1 << 23
"""Their weights, gradients and states are 128 MiB: more than the caches hold."""


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
