"""What each operator of a layer keeps for backward, and what experts keep."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from parsim.arrays import Array
from parsim.cost.layer.eager import eager_kind
from parsim.cost.layer.head_copies import copied_width
from parsim.cost.layer.kept.attention_tensors import core_operands, core_scores
from parsim.cost.layer.kept.expert_tensors import expert_bytes, spared_bytes
from parsim.cost.layer.kept.policy import FUSED, KeptPolicy, product_input_bytes
from parsim.cost.layer.kept.recomputed_modules import FEED_FORWARD, has_latent_attention, modules_of
from parsim.model.adapters import is_first_beside_columns
from parsim.model.layer import Layer
from parsim.model.networks import Convolution, Recurrent
from parsim.model.operators import (
    Attention,
    Elementwise,
    Experts,
    Linear,
    Operator,
    Region,
    Split,
    Timed,
)
from parsim.plan import PlanTable

KINDS = (
    "layer_inputs",
    "norms",
    "attention",
    "attention_scores",
    "mlp",
    "experts",
    "images",
    "dropout_masks",
)
"""Kinds of what a layer keeps; `layer_inputs` are those that recomputation starts from."""


def kept_tensors(
    layer: Layer,
    table: PlanTable,
    again: frozenset[str] = frozenset(),
    policy: KeptPolicy = FUSED,
) -> Iterator[tuple[Operator, str, Array]]:
    """What each operator of a layer keeps: the operator, the kind, bytes (B,)."""
    yield from _plain_tensors(layer, table)
    product = table.precision.activation if layer.outer else product_input_bytes(table)
    for position, op, name in kept_kinds(layer):
        if isinstance(op, Linear):
            repeated = again and _input_is_made_again(layer, op, again, region=policy.region)
            kept = op.trained and op.keeps_input and position not in layer.shared_inputs
            if kept and not repeated:
                yield op, name, _input(op, table, policy) * product
        elif isinstance(op, Elementwise):
            if not _is_made_again(layer, op, again, region=policy.region):
                yield from _of_elementwise(op, name, table, policy)
        elif isinstance(op, Experts):
            tokens = table.on_rank(op.tokens)
            spared = spared_bytes(op, table, tokens, again)
            yield op, name, expert_bytes(op, table, tokens, product) - spared
        else:
            yield from _of_attention(layer, op, table, again, policy)


def _of_attention(
    layer: Layer, op: Attention, table: PlanTable, again: frozenset[str], policy: KeptPolicy
) -> Iterator[tuple[Operator, str, Array]]:
    """What the core keeps: its operands, unless their projections are repeated, and its scores."""
    gone = modules_of(layer, op) & again if again else again
    if not ("mla_up_proj" in again and has_latent_attention(layer)):
        whole = layer.outer or (policy.region and gone)
        product = table.precision.activation if whole else product_input_bytes(table)
        yield op, "attention", core_operands(layer, op, table, policy, product)
    if not gone:
        yield op, "attention_scores", core_scores(op, table, policy)


def _is_made_again(layer: Layer, op: Elementwise, again: frozenset[str], *, region: bool) -> bool:
    """Whether a pass is repeated itself, or its output inside a region that is."""
    if again and op.name in FEED_FORWARD and modules_of(layer, op) & again:
        return True
    return region and op.name == "mlp_norm" and "attn_proj" in again


def _of_elementwise(
    op: Elementwise, name: str, table: PlanTable, policy: KeptPolicy
) -> Iterator[tuple[Operator, str, Array]]:
    """What a pass over the tokens of a rank keeps of its values, and its masks."""
    tokens, value = table.on_rank(op.tokens), table.precision.activation
    split = table.tp if op.region is Region.TENSOR else table.sequence_split
    saved = op.saved + policy.eager.get(eager_kind(op), 0.0)
    copied = tokens * copied_width(op.shared, table) * saved * value
    yield op, name, np.asarray(tokens * op.width * saved * value / split + copied)
    yield op, "dropout_masks", np.asarray(tokens * op.width * op.mask / split)


def _input_is_made_again(layer: Layer, op: Linear, again: frozenset[str], *, region: bool) -> bool:
    """Whether a norm or an activation that is computed again makes a product's input.

    In a region also attention.
    """
    if op.name == "fc2":
        return bool(modules_of(layer, op) & again)
    if op.name == "projection" and region and "core_attn" in again:
        return True
    position = layer.operators.index(op)
    ahead = layer.operators[position - 1] if position else op
    return "layernorm" in modules_of(layer, ahead) & again


def border_bytes(table: PlanTable, values: int) -> Array:
    """Bytes on one rank of the activations at a border that so many values a sample cross, (B,)."""
    return np.asarray(table.on_rank(values) * table.precision.activation / table.sequence_split)


def _own_values(op: Convolution | Recurrent | Timed) -> int:
    """Values of a sample that an operator keeps: its input, gates and states, or what was told."""
    if isinstance(op, Timed):
        return op.saved
    if isinstance(op, Convolution):
        return op.values_in * op.keeps_input
    states = op.directions * (op.gates + 2) * op.hidden
    return op.tokens * (op.inputs * op.keeps_input + states)


def _plain_tensors(layer: Layer, table: PlanTable) -> Iterator[tuple[Operator, str, Array]]:
    """What operators keep that no tensor parallelism divides: operator, kind, bytes."""
    for op in layer.operators:
        if isinstance(op, Convolution | Recurrent | Timed):
            name = "images" if isinstance(op, Convolution) else "mlp"
            size = np.asarray(table.on_rank(_own_values(op)) * table.precision.activation)
            yield op, name, size


def kept_kinds(
    layer: Layer,
) -> Iterator[tuple[int, Linear | Elementwise | Attention | Experts, str]]:
    """Position, operator, kind of those that keep anything; attention ends with its projection."""
    if any(isinstance(op, Convolution) for op in layer.operators):
        for position, op in enumerate(layer.operators):
            if isinstance(op, Linear | Elementwise):
                yield position, op, "images"
        return
    ahead = any(isinstance(op, Attention) for op in layer.operators)
    passed = False
    for position, op in enumerate(layer.operators):
        if isinstance(op, Elementwise):
            yield position, op, "norms" if op.kind == "norm" else "attention" if ahead else "mlp"
        elif isinstance(op, Attention):
            passed = True
            yield position, op, "attention"
        elif isinstance(op, Linear):
            yield position, op, "attention" if ahead else "mlp"
            ahead = ahead and not passed
        elif isinstance(op, Experts):
            yield position, op, "experts"


def _input(op: Linear, table: PlanTable, policy: KeptPolicy) -> Array:
    """Values of a product's input on a rank."""
    split = {Split.COLUMN: table.sequence_split, Split.ROW: table.tp}.get(op.split, 1)
    if op.on_sequence or (policy.local_adapters and is_first_beside_columns(op)):
        split = table.sequence_split
    rows = table.microbatch_size if op.per_sample else table.on_rank(op.tokens)
    return np.asarray(rows * op.inputs / split)
