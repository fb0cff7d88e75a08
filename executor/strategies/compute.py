"""A worker's forward and backward, slowed down where its rank is said to be slow."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from torch import Tensor

from executor.strategies.work import Work
from parsim.plan import Plan


def gradient_of(work: Work, number: int) -> tuple[float, Tensor]:
    """Loss and gradient of this rank's batch of a round."""
    begin, rank = time.perf_counter(), dist.get_rank()
    batch = work.batches(rank, number)
    loss, gradient = work.replica.gradient(batch, work.plan.microbatches[rank])
    wait(work, rank, number, time.perf_counter() - begin)
    return loss, gradient


def wait(work: Work, worker: int, number: int, lasted: float) -> None:
    """Sleep for what a worker that is slow, or delayed, needs beside the seconds it `lasted`."""
    delayed = work.delay(worker, number) if work.delay is not None else 0.0
    slow = work.slow.get(worker, 1.0)
    if slow > 1.0 or delayed:
        time.sleep(max(slow - 1.0, 0.0) * lasted + delayed)


def weight(plan: Plan, worker: int) -> float:
    """By what a worker's mean gradient is multiplied, so that the mean is that over all samples.

    n b_i / sum(b) with b_i samples of n workers: 1 where all have as many.
    """
    counts = plan.microbatches
    return len(counts) * counts[worker] / sum(counts)


def samples_by_process(plan: Plan) -> tuple[int, ...]:
    """Samples of a round in each process of a plan: those of a worker, or of all copies."""
    if plan.strategy.one_process:
        return (plan.global_batch_size,)
    return tuple(count * plan.microbatch_size for count in plan.microbatches)


def average(values: Tensor, group: dist.ProcessGroup | None = None) -> Tensor:
    """Replace values by their mean over the ranks of a group, the same on each of them."""
    dist.all_reduce(values, group=group)
    return values.div_(dist.get_world_size(group))


def norm_of(gradient: Tensor) -> Tensor:
    """Euclidean norm of a flat gradient."""
    return torch.linalg.vector_norm(gradient)
