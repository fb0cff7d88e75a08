"""Worker: fp16 plans beside one process, and what a gradient that overflows on one rank does.

Argument: folder for the results.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from executor.devices.mesh import process_group
from executor.measure.gradients import gather_gradients
from executor.measure.steps import mean_over_ranks
from executor.measure.tolerance import judge
from executor.parallel.context import rank_part
from executor.torch_internals.distributed import stored_tensor
from executor.training.build import build_trainer
from executor.training.norm import gradient_values
from executor.training.trainer import Trainer
from executor.training.update_rule import OptimizerConfig, Rate
from parsim.model.transformer import TransformerSpec
from parsim.plan import Plan
from tests.executor.launch import die_with_parent, results
from tests.executor.workers.plans import batch
from tests.executor.workers.specs import SPECS

CPU = torch.device("cpu")
SEED = 5
HIGH = OptimizerConfig(
    rate=Rate(warmup=8), clip=1.0, loss_scale=2.0**40, weight_decay=0.0
)  # no fp16 gradient survives that scale
BALANCED = replace(SPECS["mixtral"], router_aux_loss_coef=50.0)
"""The balance of experts is most of the gradient of its routers."""


def plan(precision: str = "fp16", **fields: Any) -> Plan:
    return Plan(precision=precision, num_microbatches=2, **fields)


CASES: dict[int, list[tuple[TransformerSpec, Plan]]] = {
    2: [
        (SPECS["gpt"], plan(dp_replicate=2)),
        (SPECS["gpt"], plan("fp16_amp", dp_replicate=2)),
        (SPECS["llama"], plan(dp_shard=2, zero_stage=3)),
        (replace(SPECS["gpt"], num_layers=4), plan("fp16_amp", pp=2, schedule="zb_v", v=2)),
        (SPECS["gpt"], plan(pp=2)),
        (SPECS["llama"], plan(tp=2, sequence_parallel=True)),
        (BALANCED, plan("fp16_amp", dp_replicate=2, ep=2)),
    ],
    4: [
        (SPECS["gpt"], plan(pp=2, dp_shard=2, zero_stage=1)),
        (SPECS["llama"], plan(pp=2, tp=2, sequence_parallel=True)),
        (SPECS["llama"], plan(cp=2, dp_shard=2, zero_stage=2)),
        (SPECS["mixtral"], plan(dp_shard=4, zero_stage=1, ep=2)),
    ],
}


def trainer_of(spec: TransformerSpec, which: Plan, config: OptimizerConfig) -> Trainer:
    return build_trainer(spec, which, device=CPU, seed=SEED, optimizer=config)


def against_one_process(spec: TransformerSpec, which: Plan) -> dict[str, Any]:
    trainer = trainer_of(spec, which, OptimizerConfig())
    tokens, targets = batch(which, spec)
    mine = rank_part(spec, which, dist.get_rank(), (tokens, targets))
    loss = mean_over_ranks(trainer.gradients(*mine), CPU)
    gradients = gather_gradients(trainer.replicas, trainer.mesh, which)
    if dist.get_rank() != 0:
        return {}
    result = judge(spec, which, (tokens, targets), SEED, loss, gradients)
    return {**asdict(result), "within": result.within}


def state_of(trainer: Trainer) -> list[Tensor]:
    """Everything that an update writes, copied."""
    parameters = [p for replica in trainer.replicas for p in replica.stage.parameters()]
    states = [values for *_, values in trainer.optimizer.state_pieces()]
    return [stored_tensor(p).detach().clone() for p in parameters] + [s.clone() for s in states]


def same(before: list[Tensor], after: list[Tensor]) -> bool:
    return all(torch.equal(first, second) for first, second in zip(before, after, strict=True))


def overflow(spec: TransformerSpec, which: Plan) -> dict[str, Any]:
    """A step in which one value on the last rank alone overflows, between steps that do not."""
    trainer = trainer_of(spec, which, replace(HIGH, loss_scale=2.0**8))
    mine = rank_part(spec, which, dist.get_rank(), batch(which, spec))
    scaling = trainer.optimizer.scaling
    assert scaling is not None
    trainer.step(*mine)
    seen: dict[str, Any] = {"scales": [scaling.scale], "rates": [], "same": []}
    for bad in (True, False):
        before = state_of(trainer)
        seen["rates"].append(trainer.optimizer.set_rate(5))
        trainer.backward(*mine)
        if bad and dist.get_rank() == dist.get_world_size() - 1:
            gradient_values(trainer.replicas)[0].view(-1)[0] = torch.inf
        trainer.optimizer.clip()
        trainer.optimizer.step()
        seen["same"].append(same(before, state_of(trainer)))
        seen["scales"].append(scaling.scale)
    seen["rates"].append(trainer.optimizer.set_rate(5))
    return {**seen, "skipped": trainer.optimizer.skipped, "updates": trainer.optimizer.updates}


def falling(spec: TransformerSpec, which: Plan) -> dict[str, Any]:
    """Steps from a scale that is far too high, until the first update."""
    trainer = trainer_of(spec, which, HIGH)
    mine = rank_part(spec, which, dist.get_rank(), batch(which, spec))
    while not trainer.optimizer.updates and trainer.optimizer.skipped < 50:
        losses = trainer.step(*mine)
    assert trainer.optimizer.scaling is not None
    return {
        "skipped": trainer.optimizer.skipped,
        "scale": trainer.optimizer.scaling.scale,
        "norm": float(trainer.optimizer.norm),
        "loss": mean_over_ranks(losses, CPU),
    }


def main(folder: str) -> None:
    die_with_parent()
    torch.set_num_threads(1)
    with process_group("gloo", 60.0):
        cases = CASES[dist.get_world_size()]
        measured = {
            f"{spec.name} {which.precision} {which.label()}": {
                "judged": against_one_process(spec, which),
                "overflow": overflow(spec, which),
            }
            for spec, which in cases
        }
        spec, which = cases[-2]
        results(folder, dist.get_rank(), {"cases": measured, "falling": falling(spec, which)})


if __name__ == "__main__":
    main(sys.argv[1])
