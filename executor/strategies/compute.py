"""A worker's forward and backward, slowed down where its rank is said to be slow."""

from __future__ import annotations

import time

import torch.distributed as dist
from torch import Tensor

from executor.strategies.log import Work


def gradient_of(work: Work, number: int) -> tuple[float, Tensor]:
    """Loss and gradient of this rank's batch of a round."""
    begin = time.perf_counter()
    batch = work.batches(dist.get_rank(), number)
    loss, gradient = work.replica.gradient(batch, work.plan.num_microbatches)
    if work.slow > 1.0:
        time.sleep((work.slow - 1.0) * (time.perf_counter() - begin))
    return loss, gradient


def mean_of_all(values: Tensor, group: dist.ProcessGroup | None = None) -> Tensor:
    """The mean over the ranks of a group, the same on each of them."""
    total = values.clone()
    dist.all_reduce(total, group=group)
    return total / dist.get_world_size(group)
