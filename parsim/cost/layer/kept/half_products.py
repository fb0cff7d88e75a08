"""What stays where every second product of a layer is computed again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from parsim.arrays import Array
from parsim.cost.layer.head_copies import beyond_share
from parsim.cost.layer.kept.expert_tensors import expert_bytes
from parsim.cost.layer.kept.operator_tensors import kept_kinds
from parsim.model.layer import Layer
from parsim.model.operators import Attention, Elementwise, Linear, Split
from parsim.plan import PlanTable

Parts = dict[str, Array]
"""Kind of what is kept to its bytes, (B,) each."""


def every_second_product(layer: Layer, table: PlanTable, *, keeps_output: bool) -> Parts:
    """Attention outputs and the 1st, 3rd, 5th ... output of the layer's matrix products.

    Source: torchtitan's operator-level policy counts products and keeps the odd ones: of
    q k v o gate up down it keeps q, v, gate and down.
    """
    value = table.precision.activation
    parts: Parts = {"attention": np.zeros(len(table)), "mlp": np.zeros(len(table))}
    if layer.experts is not None:  # keeps every second product's output, and the map
        parts["experts"] = 0.5 * expert_bytes(
            layer.experts, table, table.on_rank(layer.experts.tokens), value
        )
    products = list(_products(layer))
    for number, (width, op, name, heads) in enumerate(products):
        last = number == len(products) - 1
        if number % 2 == 0 and (keeps_output or not last):
            ranks = table.tp if op.split is Split.COLUMN else table.sequence_split
            copied = beyond_share(width, heads, table) if heads else 0.0
            tokens = table.on_rank(op.tokens) * value
            parts[name] = parts.get(name, 0.0) + tokens * width / ranks + tokens * copied
    for core in layer.operators:
        if isinstance(core, Attention):
            size = table.on_rank(core.tokens) * value * core.heads * core.output_dim / table.tp
            parts["attention"] = parts["attention"] + size
    return parts


def _products(layer: Layer) -> Iterator[tuple[int, Linear, str, int]]:
    """Products as models write them: outputs, operator, kind, and heads as in `matrices`."""
    for _, op, name in kept_kinds(layer):
        if isinstance(op, Linear):
            for width, heads in matrices(layer, op):
                yield width, op, name, heads


def matrices(layer: Layer, op: Linear) -> tuple[tuple[int, int], ...]:
    """Outputs of the matrices that models write a product as, q, k, v and gate, up apart.

    And of each the heads of keys or values that cannot be divided further, 0 of others.
    """
    core = next((core for core in layer.operators if isinstance(core, Attention)), None)
    gates = {
        op.width for op in layer.operators if isinstance(op, Elementwise) and op.kind == "swiglu"
    }
    if core and op.name == "qkv":
        keys = (core.kv_heads * core.head_dim, core.kv_heads)
        return ((core.heads * core.head_dim, 0), keys, keys)
    if op.split is Split.COLUMN and op.outputs // 2 in gates:
        return ((op.outputs // 2, 0), (op.outputs // 2, 0))
    return ((op.outputs, 0),)
