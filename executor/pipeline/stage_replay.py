"""Repeats a training of stages with versions of weights in one process, to hold a run against."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from executor.model.loss import LossFn
from executor.pipeline.stage_groups import MicroBatches, StageOrder, Update, Weights


def replay(
    order: StageOrder,
    stages: Sequence[nn.Module],
    count: int,
    batches: MicroBatches,
    loss_fn: LossFn,
    updates: Sequence[Update],
    sums: torch.dtype = torch.float32,
) -> list[Weights]:
    """Repeat the training one micro-batch after another in one process, by the table of versions.

    Returns the newest weights of each stage. Gradients add up in `sums`, those of a stage's
    replicas in the order of these: two give the sum that an all-reduce gives to the bit, more of
    them give it but for roundings.
    """
    added: list[Weights] = [[] for _ in stages]
    versions: list[list[Weights]] = [[[p.data for p in stage.parameters()]] for stage in stages]
    for mb in range(count):
        value, target = batches(mb)
        inputs, outputs = [], []
        for number, stage in enumerate(stages):
            given = value.detach().requires_grad_(number > 0)
            _rebind(stage, versions[number][order.used(number, mb)])
            value = stage(given)
            inputs.append(given)
            outputs.append(value)
        outputs[-1] = loss_fn(outputs[-1], target)
        gradient = None
        for number in reversed(range(len(stages))):
            outputs[number].backward(gradient)
            gradient = inputs[number].grad
            added[number] = _with_gradients(added[number], stages[number], sums)
            if order.updates_behind(number, mb):
                versions[number].append([w.clone() for w in versions[number][-1]])
                updates[number](versions[number][-1], _mean(added[number], order, number))
                added[number] = []
    return [weights[-1] for weights in versions]


def _mean(added: Weights, order: StageOrder, stage: int) -> Weights:
    """The mean of a round's gradient over the replicas of a stage, in place."""
    replicas = order.replicas.counts[stage]
    for part in added if replicas > 1 else []:
        part /= replicas
    return added


def _with_gradients(added: Weights, stage: nn.Module, dtype: torch.dtype) -> Weights:
    """Sums with the gradients of one more micro-batch, which are taken from the stage."""
    parts = [p.grad.to(dtype) for p in stage.parameters() if p.grad is not None]
    stage.zero_grad(set_to_none=True)
    return [a + b for a, b in zip(added, parts, strict=True)] if added else parts


def _rebind(module: nn.Module, weights: Weights) -> None:
    for parameter, weight in zip(module.parameters(), weights, strict=True):
        parameter.data = weight
