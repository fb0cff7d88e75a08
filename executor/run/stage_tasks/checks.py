"""Checks of a pipeline of tasks: a batch against one process, its weights against a replay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from executor.devices.all_ranks import gathered
from executor.measure.tolerance import judge, relative_error
from executor.parallel.gradients.layout import trainable
from executor.parallel.gradients.split import like_parameter, whole_tensor
from executor.parallel.precision import gradient_dtype
from executor.pipeline.stage_groups import Weights
from executor.pipeline.stage_replay import replay
from executor.run.stage_tasks.stage_trainer import StageTrainer
from parsim.model.graph.record import Graph
from parsim.sim.stages.variants import alike


def verify(trainer: StageTrainer) -> dict[str, Any] | None:
    """Loss and gradients of the first batch against one process; on rank 0, None elsewhere."""
    ranks = gathered(_first_batch(trainer))
    if dist.get_rank() != 0:
        return None
    gradients = {name: part for named, _ in ranks for name, part in named.items()}
    losses = {mb: loss for _, known_here in ranks for mb, loss in known_here.items()}
    return judge(
        trainer.part.still,
        alike(trainer.plan),
        trainer.global_batch(0),
        trainer.options.seed,
        sum(losses.values()),
        gradients,
        trainer.part.values_to_verify,
    ).to_json()


def _first_batch(trainer: StageTrainer) -> tuple[dict[str, Tensor], dict[int, float]]:
    """Gradients and losses of the first batch on this rank, with a flush and without dropout."""
    kept = trainer.module, trainer.rank, trainer.order
    trainer.order = replace(trainer.order, versions=None)
    trainer.module = trainer.build(
        trainer.stage, trainer.part.still, trainer.groups.mesh, trainer.part.values_to_verify
    )
    trainer.rank = trainer.rank_in(trainer.order)
    ran = trainer.rank.run(trainer.count, trainer.microbatch, trainer.loss, trainer.update)
    gradient = trainer.gradient().whole(ran.gradient or [])
    named = trainable(trainer.module.named_parameters())
    whole = {
        name: whole_tensor(like_parameter(parameter, part))
        for (name, parameter), part in zip(named.items(), gradient, strict=True)
    }
    trainer.module, trainer.rank, trainer.order = kept
    return whole, ran.losses


def replayed(trainer: StageTrainer, weights: Sequence[Sequence[NDArray[Any]]]) -> float | None:
    """Largest error of all ranks' final weights against a replay by the table of versions.

    None where the pipeline flushes, where tensor ranks or more than two replicas sum in an order of
    their own (Adam makes whole steps of the roundings of gradients that are zero), and with
    dropout, whose masks are drawn anew.
    """
    order, model = trainer.order, trainer.part.scenario.model
    drawn = not isinstance(model, Graph) and model.dropout
    ordered = max(order.replicas.widths) == 1 and max(order.replicas.counts) <= 2
    if order.versions is None or not ordered or drawn:
        return None
    again = _again(trainer)
    return max(
        relative_error(torch.from_numpy(trained), expected.float())
        for stage, run in zip(order.replicas.stage_of, weights, strict=True)
        for expected, trained in zip(again[stage], run, strict=True)
    )


def _again(trainer: StageTrainer) -> list[Weights]:
    """The weights of all stages when one process repeats the training by the table of versions."""
    order, model = trainer.order, trainer.part.scenario.model
    stages = [trainer.build(stage, model) for stage in range(order.replicas.stages)]
    updates = [
        trainer.descent([parameter.data for parameter in stage.parameters()], number)
        for number, stage in enumerate(stages)
    ]
    count, sums = trainer.options.last_step * trainer.count, gradient_dtype(trainer.plan)
    return replay(order, stages, count, trainer.microbatch, trainer.loss, updates, sums)
