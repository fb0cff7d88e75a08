"""The activations of a rank at its peak, by what keeps them: `memory.activations` taken apart."""

from __future__ import annotations

import numpy as np

from parsim.cost.activations import KINDS, kept_parts, whole_bytes
from parsim.cost.job import Job
from parsim.cost.stages import LayerTable, layer_counts
from parsim.cost.step import stage_cut
from parsim.plan import PlanTable
from parsim.schedule import Schedule
from parsim.sim.memory import Array, MemoryUse
from parsim.sim.peaks import composed_bytes


def activation_parts(
    job: Job, table: PlanTable, layers: LayerTable, memory: MemoryUse, schedule: Schedule, rank: int
) -> dict[str, float]:
    """Bytes by kind on a rank of the table's first plan; they sum to its activations.

    The kinds of `kept_parts`, the embedding's and the head's, and in eager PyTorch what composed
    operators keep twice. Eager stacks receive messages into buffers that count as communication,
    so a received layer input is not among these.
    """
    stages = list(schedule.stages_on(rank))
    held = memory.in_flight[stages, 0]
    found = {
        name: float(held @ rows[stages, 0]) for name, rows in _kept(job, table, layers).items()
    }
    if job.software.eager:
        received = [stage > 0 and schedule.stage_rank[stage - 1] != rank for stage in stages]
        twice = float(held @ np.array(received, dtype=np.float64)) * float(layers.boundary[0])
        name = "layer_inputs" if found["layer_inputs"] >= twice else "norms"
        found[name] -= twice
    return {name: size for name, size in found.items() if size != 0.0}


def _kept(job: Job, table: PlanTable, layers: LayerTable) -> dict[str, Array]:
    """Bytes of one micro-batch on each stage by kind, (S, B) each."""
    model, software = job.model, job.software
    counts = layer_counts(model, stage_cut(job, table))
    kinds = [
        kept_parts(
            layer,
            table,
            model.seq_len,
            model.hidden_size,
            half_products=software.selective == "half-products",
            keeps_output=software.keeps_output,
            ring_output=software.context_keeps_output,
        )
        for layer in model.kinds
    ]
    found = {name: counts @ np.stack([kind[name] for kind in kinds]) for name in KINDS}
    zero = np.zeros((len(counts), len(table)))
    found |= {"embedding": zero.copy(), "head": zero.copy(), "composed": zero}
    found["embedding"][0] = whole_bytes(model.embedding, table, model.seq_len)
    found["head"][-1] = whole_bytes(model.head, table, model.seq_len)
    if software.eager:
        found["composed"] = composed_bytes(job, table, counts)
    return found
