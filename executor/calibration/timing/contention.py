"""How much longer an update takes when all ranks make one at once.

Cores of one machine share its memory, and an update does little but move bytes. Each of the other
calibrated kernels counts at its least, so at a moment when the others left the memory alone; what
they lose together is seen in whole layers. A step's update is no layer, and all ranks come to it
together, behind the gradients' norm.
"""

from __future__ import annotations

import torch.distributed as dist

from executor.calibration.cases import kinds
from executor.calibration.cases.workloads import update_case
from executor.calibration.timing.bench import Bench
from parsim.cluster.plausible import MOST_CONTENTION

PARAMETERS = 1 << 23
"""Their weights, gradients and states are 128 MiB: more than the caches hold."""
ROUNDS = 9


def memory_contention(bench: Bench) -> float:
    """By what share updates on all ranks at once are longer than one on rank 0 alone.

    To be called on all ranks, at least two. 0 where a device has memory of its own.
    """
    if bench.device.type != "cpu":
        return 0.0
    case = update_case(kinds.OPTIMIZER, 0.0, PARAMETERS)
    update = bench.operators.build(case)()
    alone = bench.slowest(update if dist.get_rank() == 0 else None, ROUNDS)
    return growth(alone, bench.slowest(update, ROUNDS))


def growth(alone: float, together: float) -> float:
    """The share above, from both times."""
    return min(max(together / alone - 1.0, 0.0), MOST_CONTENTION)
