"""Which layers sit on which stage, and what crosses the borders between stages.

All plans of one call share pp and v, so a stage is a row: arrays have shape (S, B) with S = pp v
stages and B plans. The embedding sits on stage 0, the head on stage S - 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from parsim.arrays import Array, Ints
from parsim.cost.layer.kept.operator_tensors import border_bytes
from parsim.model.model import Model
from parsim.plan import Plan, PlanTable


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
