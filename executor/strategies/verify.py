"""The workers' mean gradient of the first batch, held against one process's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import torch
import torch.distributed as dist

from executor.measure.steps import known
from executor.measure.tolerance import judge
from executor.strategies.compute import mean_of_all
from executor.strategies.replica import Batch, Replica
from parsim.launch.options import RunOptions
from parsim.scenario import Scenario


def verify(
    scenario: Scenario,
    batches: Callable[[int, int], Batch],
    device: torch.device,
    options: RunOptions,
) -> dict[str, Any] | None:
    """Loss and gradient of the first global batch; on rank 0, None elsewhere.

    Without dropout. That weights follow from such gradients as the strategy says is for the tests,
    and for the replay of an asynchronous run.
    """
    plan, still = scenario.fixed_plan(), replace(scenario.spec, dropout=False)
    replica = Replica(still, seed=options.seed, device=device)
    loss, gradient = replica.gradient(batches(dist.get_rank(), 0), plan.num_microbatches)
    mean = mean_of_all(gradient)
    average = mean_of_all(torch.tensor([loss], dtype=torch.float64, device=device))
    if dist.get_rank() != 0:
        return None
    parts = [batches(worker, 0) for worker in range(plan.dp)]
    whole = torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])
    named = dict(replica.model.named_parameters())
    flat = mean.split([parameter.numel() for parameter in named.values()])
    gradients = {
        name: values.view(parameter.shape).cpu()
        for (name, parameter), values in zip(named.items(), flat, strict=True)
    }
    verdict = judge(still, plan, whole, options.seed, float(average), gradients)
    numbers = {
        name: known(value) if isinstance(value, float) else value
        for name, value in asdict(verdict).items()
    }
    return {**numbers, "within": verdict.within}
