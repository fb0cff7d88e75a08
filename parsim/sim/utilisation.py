"""FLOPs that a step's devices really run, and the error of results that cannot be."""

from __future__ import annotations

from dataclasses import replace

from parsim.cost.job import Job
from parsim.cost.modules import repeated
from parsim.errors import ParsimError
from parsim.model.operators import Attention
from parsim.plan import Plan, Recompute


class SimulatorError(ParsimError):
    """A guard found an impossible result: a bug of parsim, never the user's input."""


def recomputed_flops(job: Job, plan: Plan) -> float:
    """FLOPs of a step's recomputation: every layer's forward, or its attention products.

    Beside those, the products of parts that the plan names.
    """
    batch, model = plan.global_batch_size, job.model
    if plan.recompute is not Recompute.FULL and plan.recompute_modules:
        parts = (
            replace(layer, operators=repeated(layer, plan.recompute_modules))
            for layer in model.layers
        )
        return float(sum(part.forward_flops(batch, model.seq_len) for part in parts))
    if plan.recompute is Recompute.FULL:
        return float(sum(layer.forward_flops(batch, model.seq_len) for layer in model.layers))
    if plan.recompute is Recompute.SELECTIVE:
        cores = (op for layer in model.layers for op in layer.operators)
        return float(sum(c.flops(batch, model.seq_len) for c in cores if isinstance(c, Attention)))
    return 0.0
