"""Parameters of stages and layers on one rank."""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array
from parsim.cost.job import Job
from parsim.cost.layer.head_copies import copied_parameters, rank_weights
from parsim.cost.step.stages import over_kinds
from parsim.model.layer import Layer
from parsim.model.model import Model
from parsim.model.operators import Linear
from parsim.plan import PlanTable, Recompute


def stage_parameters(model: Model, table: PlanTable, counts: Array) -> Array:
    """Parameters of each stage on one rank, (S, B), its experts' among them.

    With tied embeddings and more than one stage the last stage holds a second copy of the table.
    """
    per_kind = np.stack([rank_parameters(layer, table) for layer in model.kinds])
    rows = over_kinds(counts, per_kind)
    for stage, outer in ((0, model.before), (-1, model.behind)):
        for layer in outer:
            rows[stage] += rank_parameters(layer, table)
    if model.tied_embeddings and len(counts) > 1:
        rows[-1] += tied_parameters(model, table)
    return rows


def stage_experts(model: Model, table: PlanTable, counts: Array) -> Array:
    """Parameters of experts on each stage of one rank, (S, B): part of `stage_parameters`."""
    per_kind = np.stack([rank_experts(layer, table) for layer in model.kinds])
    return over_kinds(counts, per_kind)


def per_rank(stages: Array, pp: int) -> Array:
    """Sum stages r, r + pp, ... that one pipeline rank holds: (S, B) -> (p, B)."""
    return np.asarray(stages.reshape(len(stages) // pp, pp, -1).sum(axis=0))


def tied_parameters(model: Model, table: PlanTable) -> Array:
    """Parameters of the shared vocabulary table on one rank, (B,)."""
    shared = model.lookup
    if shared is None:
        return np.zeros(len(table))
    return np.asarray(np.ceil(shared.vocab_size / table.tp) * shared.width)


def rank_parameters(layer: Layer, table: PlanTable) -> Array:
    """Parameters of one layer on one rank, (B,), copies of key-value heads among them."""
    shared = np.ceil(layer.split_parameters / table.tp) + layer.repeated_parameters
    return np.asarray(shared + copied_parameters(layer, table) + rank_experts(layer, table))


def rank_experts(layer: Layer, table: PlanTable) -> Array:
    """Parameters of a layer's experts on one rank, (B,): all experts' over ep x etp."""
    return np.asarray(layer.expert_parameters / table.expert_ranks)


def largest_layer_parameters(model: Model, table: PlanTable) -> Array:
    """Parameters of the largest single layer on one rank, (B,): what FSDP gathers at once."""
    return np.asarray(np.max([rank_parameters(layer, table) for layer in model.kinds], axis=0))


def gathered_again(job: Job, table: PlanTable, layer: Layer) -> Array:
    """Parameters of a recomputed layer that ZeRO-3's backward gathers a second time, (B,).

        recomputed forward  | qkv | proj | up | down |      gathered, used, let go
        backward                                     | down | up | proj | qkv |

    A matrix stays gathered where fewer than `reuse_distance` parameters are used before it is
    needed again. Between its forward and its backward the matrices behind it are used twice:

        distance(j) = 2 sum of w_i for i > j,      again = sum of w_j with distance(j) > limit

    Of a GPT layer of P parameters these are 0, 8/12, 16/12 and 18/12 P for down, up, proj and qkv:
    with DeepSpeed's 1e9 nothing of 7B's layers, a third of 52B's, two thirds of 175B's.

    Source: DeepSpeed, `runtime/zero/stage3.py`: `get_reuse_distance_in_numel` and `_keep_for_later`
    of v0.3.16, `__params_to_release` of v0.6.0; `stage3_max_reuse_distance` is 1e9 by default.
    Leaves out: the limit on all that is gathered (`stage3_max_live_parameters`), and that a
    checkpoint of several layers is longer.
    """
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
