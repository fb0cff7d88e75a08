"""The workers' mean gradient of the first batch, held against one process's."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from executor.measure.steps import known
from executor.measure.tolerance import judge
from executor.strategies.compute import average, gradient_of, weight
from executor.strategies.replays.log import Work
from executor.strategies.single_process import Copies
from executor.strategies.together.branch_parallel import Group
from executor.strategies.together.layout import Devices
from executor.strategies.together.rounds import mean_loss
from parsim.plan.strategies import BranchParallel, SingleProcess


def verify(work: Work, seed: int) -> dict[str, Any] | None:
    """Loss and gradient of the first global batch; on rank 0, None elsewhere.

    The model must have no dropout. That weights follow from such gradients as the strategy says is
    for the tests, and for the replay of an asynchronous run.
    """
    plan, replica = work.plan, work.replica
    loss, named = _gradients(work)
    if named is None:
        return None
    parts = [work.batches(worker, 0) for worker in range(plan.dp)]
    whole = torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])
    spec = replica.spec if work.laid is None else work.laid.graph
    verdict = judge(spec, plan.whole_models, whole, seed, loss, named)
    numbers = {
        name: known(value) if isinstance(value, float) else value
        for name, value in asdict(verdict).items()
    }
    return {**numbers, "within": verdict.within}


def _gradients(work: Work) -> tuple[float, dict[str, Tensor] | None]:
    """Mean loss of all workers, and on rank 0 the mean gradient by the names of parameters."""
    plan, replica = work.plan, work.replica
    if plan.strategy.sharers > 1:
        group = Group.of(work) if isinstance(plan.strategy, BranchParallel) else Devices.of(work)
        loss, gradient = group.gradient(0)
        return mean_loss(loss), group.named(gradient)
    if isinstance(plan.strategy, SingleProcess):
        copies = Copies.of(replica, plan.dp)
        with copies.threads:
            loss, mean = copies.gradient(work, 0)
    else:
        loss, gradient = gradient_of(work, 0)
        share = weight(plan, dist.get_rank())
        mean = average(share * gradient)
        loss = float(average(torch.tensor([share * loss], dtype=torch.float64)))
    return loss, None if dist.get_rank() else replica.named(mean)
