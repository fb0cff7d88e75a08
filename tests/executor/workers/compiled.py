"""Worker: plans whose layers are compiled beside the same plans in eager mode.

Argument: folder for the results.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch._dynamo.utils import counters

from executor.devices.mesh import process_group
from executor.measure.gradients import gather_gradients, max_relative_error
from executor.parallel.context import rank_part
from executor.training.build import build_trainer
from parsim.model.transformer import TransformerSpec
from parsim.plan import Plan, Recompute
from tests.executor.launch import die_with_parent, results
from tests.executor.workers.plans import batch
from tests.executor.workers.specs import SPECS

CPU = torch.device("cpu")
GPT, LLAMA = SPECS["gpt"], SPECS["llama"]


def plan(**fields: Any) -> Plan:
    return Plan(**{"precision": "fp32", "num_microbatches": 2, **fields})


CASES: list[tuple[TransformerSpec, Plan]] = [
    (GPT, plan(dp_replicate=2)),
    (LLAMA, plan(dp_shard=2, zero_stage=3, recompute=Recompute.FULL)),
    (replace(LLAMA, window=4), plan(dp_shard=2, zero_stage=1, recompute=Recompute.SELECTIVE)),
    (LLAMA, plan(pp=2)),
    (GPT, plan(dp_replicate=2, precision="bf16_amp")),
]


def gradients_of(spec: TransformerSpec, which: Plan, backend: str | None) -> Any:
    """Losses and gradients of the third of three equal steps."""
    trainer = build_trainer(spec, which, device=CPU, seed=5, backend=backend)
    mine = rank_part(spec, which, dist.get_rank(), batch(which, spec))
    for _ in range(3):
        losses = trainer.gradients(*mine)
    evaluated = trainer.evaluate([mine])[0]
    return losses, evaluated, gather_gradients(trainer.replicas, trainer.mesh, which)


def beside_eager(spec: TransformerSpec, which: Plan) -> dict[str, Any]:
    torch._dynamo.reset()
    counters.clear()
    losses, evaluated, gradients = gradients_of(spec, which, "aot_eager")
    stats = dict(counters["stats"])
    eager, expected_evaluated, expected = gradients_of(spec, which, None)
    pairs = zip([*losses, *evaluated], [*eager, *expected_evaluated], strict=True)
    return {
        "graphs": stats["unique_graphs"],
        "breaks": sum(counters["graph_break"].values()),
        "loss": max((abs(ours - theirs) for ours, theirs in pairs), default=0.0),
        "gradient": max_relative_error(gradients, expected).error,
    }


def main(folder: str) -> None:
    die_with_parent()
    torch.set_num_threads(1)
    with process_group("gloo", 120.0):
        errors = {}
        for spec, which in CASES:
            name = f"{spec.name} {which.precision} {which.label()} {spec.window}"
            errors[name] = beside_eager(spec, which)
        results(folder, dist.get_rank(), errors)


if __name__ == "__main__":
    main(sys.argv[1])
