"""How many kernels experts launch beside their products' own."""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array, Flags
from parsim.cost.software import Software
from parsim.model.operators import Experts

ROUTER, PREPROCESS, MOVING = (20, 20), (10, 0), (10, 10)
"""Launches of either direction, in the names of CUDA graphs' scopes: the router's product, casts,
scores, choice and losses (moe_router), counts of tokens for each rank and expert (moe_preprocess),
and maps and copies around dispatch and combine, which no partial graph takes.

Source: estimated from Megatron-Core's router and dispatchers; no profile was counted."""

EACH, QUANTISED, BIASED = (2, 4), (2, 2), (3, 6)
"""Launches for each local expert: products, casts of 8-bit ones, the last bias."""


def expert_launches(
    software: Software, op: Experts, local: Array, direction: int, *, quantised: bool, hidden: Flags
) -> Array:
    """Launches of a direction (0: forward, 1: backward), in launches of the stack's other kernels.

    `local` (B,) are the experts on a rank, `hidden` (B,) says whether their exchanges run beside
    another micro-batch's compute: the host then runs the parts of two layers by turns, each with an
    autograd call of its own, events and changes of stream, graphs of parts or not.

    Source of the latter: Megatron-Core, `core/models/common/model_chunk_schedule_plan.py` and
    `core/pipeline_parallel/combined_1f1b.py`.
    """
    graphs = software.captured
    around = MOVING[direction]
    around += 0 if "moe_router" in graphs else ROUTER[direction]
    around += 0 if "moe_preprocess" in graphs else PREPROCESS[direction]
    each = EACH[direction]
    each += QUANTISED[direction] if quantised else 0
    each += BIASED[direction] if op.bias else 0
    other = software.launch_cost
    longer = software.expert_launch / other if other > 0.0 else 0.0
    by_turns = software.overlap_launches * hidden
    return np.asarray((around + by_turns + each * local) * longer)
