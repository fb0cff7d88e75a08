"""Matrices that ZeRO-3 gathers twice in a backward: for a recomputed forward, and again.

    recomputed forward  | qkv | proj | up | down |      gathered, used, let go
    backward                              | down | up | proj | qkv |

A matrix stays gathered where fewer than `reuse_distance` parameters are used before it is needed
again. Between a matrix's forward and its backward the matrices behind it are used twice, so that

    distance(j) = 2 sum of w_i for i > j,      again = sum of w_j with distance(j) > reuse_distance

Of a GPT layer of P parameters these are 0, 8/12, 16/12 and 18/12 P for down, up, proj and qkv: with
DeepSpeed's 1e9 nothing of 7B's layers, a third of 52B's, two thirds of 175B's.

Source: DeepSpeed, `runtime/zero/stage3.py`: `get_reuse_distance_in_numel` and `_keep_for_later` of
v0.3.16, `__params_to_release` of v0.6.0; `stage3_max_reuse_distance` is 1e9 by default.
Leaves out: the limit on all that is gathered (`stage3_max_live_parameters`), and that a checkpoint
of several layers is longer.
"""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array
from parsim.cost.job import Job
from parsim.cost.layer.head_copies import rank_weights
from parsim.model.layer import Layer
from parsim.model.operators import Linear
from parsim.plan import PlanTable, Recompute


def gathered_again(job: Job, table: PlanTable, layer: Layer) -> Array:
    """Parameters of a recomputed layer that its backward gathers a second time, (B,)."""
    limit = job.software.reuse_distance
    behind, again = np.zeros(len(table)), np.zeros(len(table))
    if limit is None:
        return again
    for op in reversed(layer.operators):
        if isinstance(op, Linear):
            weights = rank_weights(op, table)
            again = again + np.where(behind > limit, weights, 0.0)
            behind = behind + 2.0 * weights
    return np.where(table.recompute == Recompute.FULL, again, 0.0)
