"""The clock by which a training with a strategy notes its moments, with one zero for all ranks.

Who applied what before whom, and how long all workers trained together, is read from moments of
several ranks: they mean something only if the ranks began to count at the same time. A process
that has built its model, or predicted the run, is behind the others by tenths of a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from executor.strategies.server_messages import hosts


def clock_of_ranks(device: torch.device) -> Callable[[], float]:
    """Seconds since all ranks were here; every rank must call it.

    Processes of a machine share its monotonic clock (CLOCK_MONOTONIC on Linux), so that rank 0's
    moment behind the barrier is the zero of all. Machines count from their own starts: of several,
    each rank counts from its own moment behind the barrier, which are apart by the time that a
    message takes, and by what the clocks drift meanwhile.
    """
    dist.barrier()
    zero = torch.tensor([time.perf_counter()], dtype=torch.float64, device=device)
    if hosts(dist.get_world_size()) == 1:
        dist.broadcast(zero, src=0)
    start = float(zero)
    return lambda: time.perf_counter() - start
