"""Runs pipelines without flush on three ranks, and each again step by step in one process.

Every case reports whether the newest weights of this rank's stage are bit for bit those of the
replay, the versions that it held at once, and its losses.
"""

from __future__ import annotations

import datetime
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

from executor.pipeline.runtime import LossFn, TensorSpec
from executor.pipeline.without_flush import FlushlessStage, Update, Weights
from parsim.errors import PlanError
from parsim.schedule.versions import Versions
from tests.executor.launch import die_with_parent, results

WIDTH, SAMPLES, COUNT = 8, 4, 13
RATE = 0.05
CASES = (
    ("pipedream", 1),
    ("pipedream_vertical_sync", 1),
    ("pipedream_2bw", 4),
    ("pipedream_2bw", 2),
)


class Stage(nn.Module):  # type: ignore[misc]  # torch has no types here
    """Two layers; optionally recomputed in backward."""

    def __init__(self, stage: int, recompute: bool) -> None:
        super().__init__()
        torch.manual_seed(stage)
        self.body = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
        self.recompute = recompute

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.recompute:
            y: torch.Tensor = checkpoint(self.body, x, use_reentrant=False)
            return y
        whole: torch.Tensor = self.body(x)
        return whole


def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(7)
    shape = (SAMPLES, WIDTH)
    draw = [torch.randn(shape, generator=generator) for _ in range(2 * COUNT)]
    return list(zip(draw[::2], draw[1::2], strict=True))


def descend(newest: Weights, gradient: Weights) -> Weights:
    return [w - RATE * g for w, g in zip(newest, gradient, strict=True)]


def squared(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return ((output - target) ** 2).mean()


def replay(
    versions: Versions,
    stages: Mapping[int, nn.Module],
    batches: Sequence[tuple[torch.Tensor, torch.Tensor]],
    loss_fn: LossFn,
    update: Update,
) -> list[Weights]:
    """The same training step by step in one process, by the table of versions alone."""
    held: list[list[Weights]] = [
        [[p.data for p in stages[s].parameters()]] for s in range(versions.pp)
    ]
    gradients: list[Weights | None] = [None] * versions.pp
    for mb, (batch, target) in enumerate(batches):
        inputs, outputs, value = [], [], batch
        for stage in range(versions.pp):
            given = value.detach().requires_grad_(stage > 0)
            _rebind(stages[stage], held[stage][versions.used(stage, mb)])
            value = stages[stage](given)
            inputs.append(given)
            outputs.append(value)
        gradient = None
        outputs[-1] = loss_fn(outputs[-1], target)
        for stage in reversed(range(versions.pp)):
            outputs[stage].backward(gradient)
            gradient = inputs[stage].grad
            fresh = [p.grad for p in stages[stage].parameters() if p.grad is not None]
            before = gradients[stage]
            summed = (
                fresh if before is None else [a + b for a, b in zip(before, fresh, strict=True)]
            )
            stages[stage].zero_grad(set_to_none=True)
            gradients[stage] = summed
            if versions.made(stage, mb) is not None:
                held[stage].append(update(held[stage][-1], summed))
                gradients[stage] = None
    return [weights[-1] for weights in held]


def _rebind(module: nn.Module, weights: Weights) -> None:
    for parameter, weight in zip(module.parameters(), weights, strict=True):
        parameter.data = weight


def case(rule: str, batch: int, recompute: bool) -> dict[str, Any]:
    versions, rank = Versions(rule=rule, pp=3, batch=batch), dist.get_rank()
    edge = TensorSpec((SAMPLES, WIDTH), torch.float32)
    stage = FlushlessStage(versions, Stage(rank, recompute), (edge, edge), dist.group.WORLD)
    trained = stage.train(batches(), squared, descend)
    alone = replay(versions, {s: Stage(s, False) for s in range(3)}, batches(), squared, descend)
    first = [p.data for p in Stage(rank, False).parameters()]
    return {
        "equal": _equal(trained.weights, alone[rank]),
        "moved": not _equal(trained.weights, first),
        "most_versions": trained.most_versions,
        "used": list(trained.used.values()),
        "losses": trained.losses,
    }


def _equal(ours: Weights, theirs: Weights) -> bool:
    return all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def refusal() -> str:
    edge = TensorSpec((SAMPLES, WIDTH), torch.float32)
    versions = Versions(rule="pipedream", pp=4)
    try:
        FlushlessStage(versions, Stage(0, False), (edge, edge), dist.group.WORLD)
    except PlanError as error:
        return str(error)
    return "none"


def main() -> None:
    folder = sys.argv[1]
    die_with_parent()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=30))
    try:
        found: dict[str, Any] = {
            f"{rule} {batch}": case(rule, batch, False) for rule, batch in CASES
        }
        found["recomputed"] = case("pipedream", 1, True)
        found["refusal"] = refusal()
        results(folder, int(os.environ["RANK"]), found)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
