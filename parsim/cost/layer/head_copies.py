"""What tensor-parallel ranks have of key-value heads, of which there are fewer than ranks.

Of g heads, w values wide together, a rank of t has w / min(t, g) where each holds whole heads, and
so w / min(t, g) - w / t more than its equal share. That is 0 where t divides g.
"""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array, Num
from parsim.model.layer import Layer
from parsim.model.operators import Elementwise, Linear, Region, Split
from parsim.model.shared_heads import SharedHeads
from parsim.plan import PlanTable


def beyond_share(size: float, heads: int, table: PlanTable) -> Array:
    """What a rank has of so many heads of a `size` together beyond size / tp, (B,)."""
    return np.asarray(size / np.minimum(table.tp, heads) - size / table.tp)


def copied_width(shared: SharedHeads | None, table: PlanTable) -> Num:
    """Values a token of shared heads that a rank has beyond its equal share, (B,); 0.0 of none."""
    return 0.0 if shared is None else beyond_share(shared.width, shared.count, table)


def copied_outputs(op: Linear, table: PlanTable) -> Num:
    """Outputs of a product that a rank computes beyond its equal share, (B,); 0.0 of none."""
    return 0.0 if op.shared is None or op.shared.gathered else copied_width(op.shared, table)


def rank_outputs(op: Linear, table: PlanTable) -> Array:
    """Outputs of a product on a rank, (B,): its share where they are split, all where not."""
    split = np.where(op.split is Split.COLUMN, table.tp, 1)
    return np.asarray(op.outputs / split + copied_outputs(op, table))


def rank_values(op: Elementwise, tokens: Array, table: PlanTable) -> Array:
    """Values that an operator makes of so many tokens on a rank, (B,)."""
    if op.region is Region.SEQUENCE:
        return np.asarray(tokens * op.width / table.sequence_split)
    return np.asarray(tokens * op.width / table.tp + tokens * copied_width(op.shared, table))


def rank_weights(op: Linear, table: PlanTable) -> Array:
    """Elements of a product's matrix on a rank, (B,): all of it where it is not split."""
    split = 1 if op.split is Split.NONE else table.tp
    return np.asarray(op.inputs * op.outputs / split + op.inputs * copied_outputs(op, table))


def copied_parameters(layer: Layer, table: PlanTable) -> Array:
    """Parameters of a layer that a rank holds beyond its equal share, (B,)."""
    total = np.zeros(len(table))
    for op in layer.operators:
        if isinstance(op, Linear) and op.shared is not None:
            total = total + beyond_share(op.copied_parameters, op.shared.count, table)
    return total


def shared_parameters(layer: Layer, table: PlanTable) -> Array:
    """Parameters of a layer on a rank that other ranks hold too, as copies of a head, (B,)."""
    total = np.zeros(len(table))
    for op in layer.operators:
        if isinstance(op, Linear) and op.shared is not None:
            on_rank = op.copied_parameters / np.minimum(table.tp, op.shared.count)
            total = total + np.where(table.tp > op.shared.count, on_rank, 0.0)
    return total


def key_value_heads(layers: tuple[Layer, ...]) -> int | None:
    """The fewest heads of keys and values of any of these layers' products; None without any."""
    return min(
        (
            op.shared.count
            for layer in layers
            for op in layer.operators
            if isinstance(op, Linear) and op.shared is not None
        ),
        default=None,
    )
