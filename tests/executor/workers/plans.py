"""Worker: holds a sample of plans against one process, and says what each of them showed.

Arguments: folder for the results, seed, number of plans, precision, names of models.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from executor.devices.mesh import coordinates, process_group, replica_index
from executor.measure.gradients import gather_gradients
from executor.measure.steps import mean_over_ranks
from executor.measure.tolerance import judge
from executor.model.loss import IGNORED
from executor.parallel.context import rank_part
from executor.training.build import build_trainer
from parsim.errors import PlanError
from parsim.model.transformer import TransformerSpec
from parsim.plan import Plan
from tests.executor.launch import die_with_parent, results
from tests.executor.random_plans import MODELS, random_plans

CPU = torch.device("cpu")
SEED = 5


def batch(plan: Plan, spec: TransformerSpec) -> tuple[Tensor, Tensor]:
    """Random ids; where both sides are seen, some are targets, equally many in each sequence."""
    generator = torch.Generator().manual_seed(SEED)
    shape = (2, plan.global_batch_size, spec.seq_len)
    tokens, targets = torch.randint(spec.vocab_size, shape, generator=generator)
    if not spec.causal:
        targets[:, 3:] = IGNORED
    return tokens, targets


def _refused_by_all(message: str) -> str:
    """Why all ranks refuse a plan, or nothing: where only some do, the others would wait."""
    messages: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(messages, message)
    if any(messages) and not all(messages):
        raise RuntimeError(f"refused by some ranks only: {messages}")
    return messages[0]


def verified(spec: TransformerSpec, plan: Plan) -> dict[str, Any]:
    """Errors of the second of two equal steps."""
    tokens, targets = batch(plan, spec)
    try:
        built, message = build_trainer(spec, plan, device=CPU, seed=SEED), ""
    except PlanError as error:
        built, message = None, str(error)
    refused = _refused_by_all(message)
    if refused or built is None:
        return {"refused": refused}
    trainer = built
    mine = rank_part(spec, plan, dist.get_rank(), (tokens, targets))
    trainer.gradients(*mine)
    losses = trainer.gradients(*mine)
    loss = mean_over_ranks(losses, CPU)
    equal: list[Any] = [None] * plan.world_size
    rank = dist.get_rank()
    dist.all_gather_object(
        equal, ((replica_index(plan, rank), coordinates(plan, rank)["cp"]), losses)
    )
    gradients = gather_gradients(trainer.replicas, trainer.mesh, plan)
    if dist.get_rank() != 0:
        return {}
    result = judge(spec, plan, (tokens, targets), SEED, loss, gradients)
    by_replica: dict[tuple[int, int], set[tuple[float, ...]]] = {}
    for replica, values in equal:
        by_replica.setdefault(replica, set()).update([tuple(values)] if values else [])
    return {
        **asdict(result),
        "within": result.within,
        "kinds": sorted({replica.kind for replica in trainer.replicas}),
        # each copy of the model has the losses of its own micro-batches
        "losses": max(len(values) for values in by_replica.values()) - plan.copies + 1,
    }


def main(folder: str, seed: str, count: str, precision: str, *families: str) -> None:
    die_with_parent()
    torch.set_num_threads(1)
    with process_group("gloo", 120.0):
        ranks = dist.get_world_size()
        plans = random_plans(
            int(seed), ranks=ranks, count=int(count), precision=precision, families=families
        )
        collected = []
        for name, plan in plans:
            try:
                collected.append({"plan": f"{name} {plan}", **verified(MODELS[name], plan)})
            except Exception as error:
                raise RuntimeError(f"{name} {plan}") from error
        results(folder, dist.get_rank(), collected)


if __name__ == "__main__":
    main(*sys.argv[1:])
