"""Worker: two ranks that update in the host's memory, beside the same plans that do not.

Argument: folder for the results.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from executor.devices.accelerator import Cuda
from executor.devices.mesh import process_group
from executor.parallel.context import rank_part
from executor.torch_internals.distributed import stored_tensor
from executor.training.build import build_trainer
from executor.training.update_rule import OptimizerConfig
from parsim.plan import Plan
from tests.executor.fake_cuda import FakeCuda
from tests.executor.launch import die_with_parent, results
from tests.executor.rehearsal import rehearsed
from tests.executor.workers.plans import batch
from tests.executor.workers.specs import SPECS

CPU = torch.device("cpu")


def plan(precision: str, **fields: Any) -> Plan:
    return Plan(precision=precision, num_microbatches=2, **fields)


CASES = {
    "DDP": plan("fp32", dp_replicate=2),
    "buckets": plan("bf16", dp_replicate=2),
    "ZeRO 1": plan("fp32", dp_shard=2, zero_stage=1),
    "ZeRO 1 in bf16": plan("bf16", dp_shard=2, zero_stage=1),
    "ZeRO 2": plan("bf16", dp_shard=2, zero_stage=2),
    "pipeline": plan("bf16_amp", pp=2),
    "tensor parallel": plan("fp32", tp=2),
}


def trained(plan: Plan) -> tuple[list[float], dict[str, Tensor], float]:
    """Losses, this rank's weights and the last gradient's norm of three steps."""
    spec = SPECS["gpt"]
    trainer = build_trainer(spec, plan, device=CPU, seed=3, optimizer=OptimizerConfig(clip=1.0))
    losses: list[float] = []
    for _ in range(3):
        losses += trainer.step(*rank_part(spec, plan, dist.get_rank(), batch(plan, spec)))
    weights = {
        f"{number}.{name}": stored_tensor(parameter).detach().clone()
        for number, replica in enumerate(trainer.replicas)
        for name, parameter in replica.stage.named_parameters()
    }
    return losses, weights, float(trainer.optimizer.norm)


def same(plan: Plan) -> dict[str, Any]:
    """Whether updates on the host and on the device gave the same, and how often was copied."""
    losses, weights, norm = trained(plan)
    cuda = FakeCuda()
    with rehearsed(Cuda(CPU, cuda)):
        there = trained(replace(plan, optimizer_offload=True))
    return {
        "losses": losses == there[0],
        "norm": norm == there[2],
        "weights": all(torch.equal(weight, there[1][name]) for name, weight in weights.items()),
        "copies": cuda.calls.count("stream"),
    }


def main() -> None:
    die_with_parent()
    torch.set_num_threads(1)
    with process_group("gloo", 60.0):
        compared = {name: same(plan) for name, plan in CASES.items()}
        results(sys.argv[1], dist.get_rank(), compared)


if __name__ == "__main__":
    main()
