"""Runs pipelines without flush, or with unequal stages, on three ranks and again in one process.

Every case reports whether the newest weights of this rank's stage are bit for bit those of the
replay, the versions that it held at once, and its losses.
"""

from __future__ import annotations

import datetime
import os
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

from executor.pipeline.stage_groups import StageOrder, Weights
from executor.pipeline.stage_replay import replay
from executor.pipeline.stage_run import StageRank
from executor.pipeline.tensor_spec import TensorSpec
from parsim.errors import PlanError
from parsim.schedule.replicas import StageReplicas
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


def descend(weights: Weights, gradient: Weights) -> None:
    for weight, part in zip(weights, gradient, strict=True):
        weight -= RATE * part


def squared(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return ((output - target) ** 2).mean()


def nth() -> Callable[[int], tuple[torch.Tensor, torch.Tensor]]:
    return batches().__getitem__


def case(rule: str, batch: int, recompute: bool) -> dict[str, Any]:
    order, rank = StageOrder.of(Versions(rule=rule, pp=3, batch=batch)), dist.get_rank()
    edge = TensorSpec((SAMPLES, WIDTH), torch.float32)
    stage = StageRank(order, Stage(rank, recompute), (edge, edge), dist.group.WORLD)
    ran = stage.run(COUNT, nth(), squared, descend)
    fresh = [Stage(number, False) for number in range(3)]
    alone = replay(order, fresh, COUNT, nth(), squared, [descend] * 3)
    first = [p.data for p in Stage(rank, False).parameters()]
    return {
        "equal": _equal(ran.weights, alone[rank]),
        "moved": not _equal(ran.weights, first),
        "most_versions": ran.most_versions,
        "used": list(ran.used.values()),
        "losses": list(ran.losses.values()),
    }


def unequal(counts: tuple[int, ...], rule: str, late: tuple[int, ...] = ()) -> dict[str, Any]:
    """Stages with replicas of their own against one process."""
    replicas, rank = StageReplicas(counts), dist.get_rank()
    groups = [dist.new_group(list(replicas.ranks(s))) for s in range(len(counts))]
    order = StageOrder(replicas=replicas, warmups=replicas.warmups)
    if rule:
        order = StageOrder.of(Versions(rule=rule, pp=len(counts), counts=counts, late=late))
    number, edge = replicas.stage_of[rank], TensorSpec((SAMPLES, WIDTH), torch.float32)
    stage = StageRank(order, Stage(number, False), (edge, edge), dist.group.WORLD, groups[number])
    ran = stage.run(12, nth(), squared, descend)
    if rule:
        fresh = [Stage(s, False) for s in range(len(counts))]
        alone = replay(order, fresh, 12, nth(), squared, [descend] * len(counts))
        return {
            "versions": ran.most_versions,
            "used": list(ran.used.values()),
            "weights": [w.sum().item() for w in ran.weights],
            "equal": _equal(ran.weights, alone[number]),
            "moved": not _equal(ran.weights, [p.data for p in Stage(number, False).parameters()]),
        }
    stage.sums.begin(1, ran.gradient or [])
    ((_, gradient),) = stage.sums.take()
    model = nn.Sequential(*(Stage(s, False) for s in range(len(counts))))
    for x, y in batches()[:12]:
        squared(model(x), y).backward()
    wanted = [p.grad / counts[number] for p in model[number].parameters()]
    errors = [float((a - b).abs().max()) for a, b in zip(gradient, wanted, strict=True)]
    return {"error": max(errors), "microbatches": sorted(ran.used)}


def _equal(ours: Weights, theirs: Weights) -> bool:
    return all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def refusal() -> str:
    edge = TensorSpec((SAMPLES, WIDTH), torch.float32)
    versions = Versions(rule="pipedream", pp=4)
    try:
        StageRank(StageOrder.of(versions), Stage(0, False), (edge, edge), dist.group.WORLD)
    except PlanError as error:
        return str(error)
    return "none"


def main() -> None:
    folder = sys.argv[1]
    die_with_parent()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=30))
    try:
        result: dict[str, Any] = {
            f"{rule} {batch}": case(rule, batch, False) for rule, batch in CASES
        }
        result["recomputed"] = case("pipedream", 1, True)
        result["refusal"] = refusal()
        result["2-1"] = unequal((2, 1), "")
        result["1-2"] = unequal((1, 2), "")
        result["2-1 pipedream"] = unequal((2, 1), "pipedream")
        result["2-1 late"] = unequal((2, 1), "pipedream", late=(1, 0))
        result["1-2 late"] = unequal((1, 2), "pipedream", late=(0, 1))
        results(folder, int(os.environ["RANK"]), result)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
