"""Which layers and parameters sit on which stage, and what crosses the borders between stages.

All plans of one call share pp and v, so a stage is a row: arrays have shape (S, B) with S = pp v
stages and B plans. The embedding sits on stage 0, the head on stage S - 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from parsim.arrays import Array, Ints
from parsim.cost.data.static_bytes import Weights
from parsim.cost.job import Job
from parsim.cost.layer.head_copies import copied_parameters, rank_weights
from parsim.cost.layer.kept.operator_tensors import border_bytes
from parsim.model.layer import Layer
from parsim.model.model import Model
from parsim.model.operators import Linear
from parsim.plan import Plan, PlanTable, Recompute


def plan_cut(plan: Plan, num_layers: int) -> tuple[int, ...]:
    """Layers per stage of a plan: as it says, else as even as possible."""
    return plan.stage_layers or even_cut(num_layers, plan.num_stages)


def even_cut(num_layers: int, num_stages: int) -> tuple[int, ...]:
    """Layers per stage, as even as possible; what is left over goes to the middle stages.

    The first and last stage also hold embedding and head, so they are the last to get an extra
    layer: 126 layers over 16 stages give 7, 8 x 14, 7, and 30 layers over 32 give 0, 1 x 30, 0, an
    embedding alone and a head alone.
    """
    base, extra = divmod(num_layers, num_stages)
    middle_out = sorted(range(num_stages), key=lambda s: abs(2 * s - num_stages + 1))
    lucky = set(middle_out[:extra])
    return tuple(base + (s in lucky) for s in range(num_stages))


def layer_counts(model: Model, cut: Sequence[int]) -> Array:
    """How many layers of each kind sit on each stage, (S, K)."""
    kinds = {id(layer): i for i, layer in enumerate(model.kinds)}
    counts = np.zeros((len(cut), len(kinds)))
    blocks, position = model.blocks, 0
    for stage, size in enumerate(cut):
        for layer in blocks[position : position + size]:
            counts[stage, kinds[id(layer)]] += 1
        position += size
    return counts


def first_layers(model: Model, cut: Sequence[int], layers: Ints) -> Array:
    """How many layers of each kind are among the first `layers` (B,) of each stage, (S, K, B)."""
    kinds = {id(layer): i for i, layer in enumerate(model.kinds)}
    counts = np.zeros((len(cut), len(kinds), len(layers)))
    position = 0
    for stage, size in enumerate(cut):
        for number, layer in enumerate(model.blocks[position : position + size]):
            counts[stage, kinds[id(layer)]] += number < layers
        position += size
    return counts


def over_kinds(counts: Array, each: Array) -> Array:
    """Sum over the layers of a stage what one of each kind has, (S, B).

    `each` (K, B) is of a layer of each kind, `counts` (S, K) how many of them each stage has, or
    (S, K, B) where the plans are cut differently.
    """
    return np.asarray(counts @ each if counts.ndim == 2 else np.einsum("skb,kb->sb", counts, each))


def stage_borders(model: Model, cut: Sequence[int]) -> tuple[int, ...]:
    """Values of a sample that each stage sends to the next one; the last stage sends none."""
    first = len(model.before)
    ends = accumulate(cut[:-1], initial=first)
    next(ends)
    return (*(model.layers[max(end - 1, 0)].outputs for end in ends), 0)


def sent_bytes(model: Model, table: PlanTable, cut: Sequence[int]) -> Array:
    """Bytes on one rank of what each stage sends to the next one, (S, B)."""
    borders = stage_borders(model, cut)
    size = {values: border_bytes(table, values) for values in dict.fromkeys(borders)}
    return np.stack([size[values] for values in borders])


def stage_weights(model: Model, table: PlanTable, counts: Array) -> Weights:
    """Parameters of each stage on one rank, and those of them that are experts'."""
    experts = stage_experts(model, table, counts) if model.experts else None
    return Weights(stage_parameters(model, table, counts), experts)


def trained_weights(model: Model, table: PlanTable, counts: Array, weights: Weights) -> Weights:
    """Parameters of stages that have gradients: the `weights` themselves where all have."""
    return weights if model.trained is None else stage_weights(model.trained, table, counts)


def saved_originals(job: Job, table: PlanTable, counts: Array) -> Array | None:
    """Frozen originals of what is trained outside the blocks beside adapters, (S, B).

    None where the stack trains the modules themselves, or nothing there is trained.

    Leaves out: that PEFT's copies of a tied table are two, which are tied no more.
    """
    trained = job.model.trained
    if trained is None or not job.software.saved_originals:
        return None
    if not any(layer.operators for layer in trained.ends):
        return None
    rows = np.zeros((len(counts), len(table)))
    for stage, outer in ((0, trained.before), (-1, trained.behind)):
        for layer in outer:
            rows[stage] += rank_parameters(layer, table)
    return rows


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
