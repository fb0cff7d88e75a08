"""What each operator of a layer keeps for backward, and what experts keep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from parsim.arrays import Array, Flags
from parsim.cost.layer.eager import eager_kind
from parsim.cost.layer.head_copies import beyond_share, copied_width
from parsim.cost.layer.kept.recomputed_modules import FEED_FORWARD, has_latent_attention, modules_of
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
from parsim.plan import CpCommType, PlanTable

Parts = dict[str, Array]
"""Kind of what is kept to its bytes, (B,) each."""

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


class KeptPolicy(NamedTuple):
    """What a software stack keeps of a layer.

    Selective recomputation is of `half_products`, whose last output only `keeps_output` keeps.
    `ring_output` keeps one more output of attention with context parallelism. What modules are
    computed again are one `region`, inside which nothing is kept. `narrow_attention` keeps queries,
    keys and values as recipes that quantise attention do. `eager` are values that an operator keeps
    beside what a fused one does, for each of its own, by its kind.
    """

    half_products: bool = False
    keeps_output: bool = False
    ring_output: bool = True
    region: bool = False
    narrow_attention: bool = False
    eager: Mapping[str, float] = MappingProxyType({})


FUSED = KeptPolicy()
"""What is taken of a stack of which nothing else is known."""


def kept_tensors(
    layer: Layer,
    table: PlanTable,
    again: frozenset[str] = frozenset(),
    policy: KeptPolicy = FUSED,
) -> Iterator[tuple[Operator, str, Array]]:
    """What each operator of a layer keeps: the operator, the kind, bytes (B,)."""
    yield from _plain_tensors(layer, table)
    value = table.precision.activation
    product = value if layer.outer else product_input_bytes(table)
    for position, op, name in _kinds(layer):
        tokens = table.on_rank(op.tokens)
        gone = modules_of(layer, op) & again if again else again
        if isinstance(op, Linear):
            repeated = again and _input_is_made_again(layer, op, again, region=policy.region)
            if not repeated and op.keeps_input and position not in layer.shared_inputs:
                yield op, name, _input(op, table, tokens) * product
        elif isinstance(op, Elementwise):
            if gone and op.name in FEED_FORWARD:
                continue
            if policy.region and op.name == "mlp_norm" and "attn_proj" in again:
                continue
            yield from _of_elementwise(op, name, table, tokens, policy)
        elif isinstance(op, Experts):
            size = expert_bytes(op, table, tokens, product) - _spared(op, table, tokens, again)
            yield op, name, size
        else:
            if not (again and "mla_up_proj" in again and has_latent_attention(layer)):
                kept = value if policy.region and gone else product
                ring, operand = policy.ring_output, _operand_bytes(layer, op, table, policy)
                yield op, name, _heads(op, table, tokens, kept, operand, ring_output=ring)
            if not gone:
                yield op, "attention_scores", _scores(op, table)


def _of_elementwise(
    op: Elementwise, name: str, table: PlanTable, tokens: Array, policy: KeptPolicy
) -> Iterator[tuple[Operator, str, Array]]:
    """What a pass over `tokens` (B,) tokens of a rank keeps of its values, and its masks."""
    value = table.precision.activation
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


def _spared(op: Experts, table: PlanTable, tokens: Array, again: frozenset[str]) -> Array:
    """Bytes that experts do not keep: the norm's output, what the activation made, or all rows."""
    arrived = tokens / table.sequence_split
    rows, f = arrived * op.top_k * table.etp, op.ffn_hidden_size / table.etp
    product, value = product_input_bytes(table), table.precision.activation
    spared = arrived * value * op.width if "layernorm" in again else np.zeros(len(table))
    if "moe" in again:
        inside = rows * (product * (op.width + f) + value * op.halves * f)
        return np.asarray(spared + inside + arrived * ROUTED * op.count)
    return np.asarray(spared + (rows * product * f if "moe_act" in again else 0.0))


def product_input_bytes(table: PlanTable) -> float:
    """Bytes of one value of a matrix product's input between forward and backward.

    Recipes that quantise say how they keep it (`Quantization.kept`); else it is an activation.
    """
    quantization = table.precision.quantization
    return float(quantization.kept if quantization else table.precision.activation)


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


def _kinds(layer: Layer) -> Iterator[tuple[int, Linear | Elementwise | Attention | Experts, str]]:
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


ROUTED = 13.0
"""Bytes kept per token and expert: fp32 logits, probabilities and chosen weights, and a map."""


def expert_bytes(op: Experts, table: PlanTable, tokens: Array, product: float) -> Array:
    """What a layer's experts keep of one micro-batch, (B,).

    T k etp rows of: the first product's input (h), its outputs (f, 2 f if gated) for the activation
    and the second product's input (f / etp each); of T tokens the router's input (h) and 13 bytes
    an expert.

    Source: what Megatron-Core's and torch's grouped products save; the weights of the sum are
    applied beside the activation, so the products' outputs are not kept.
    Leaves out: tokens that arrive in excess of the mean, where a router is not balanced.
    """
    value = table.precision.activation
    arrived = tokens / table.sequence_split
    rows = arrived * op.top_k * table.etp
    f = op.ffn_hidden_size / table.etp
    kept = product * (op.width + f) + value * op.halves * f
    return np.asarray(rows * kept + arrived * (value * op.width + ROUTED * op.count))


def _input(op: Linear, table: PlanTable, tokens: Array) -> Array:
    """Values of a product's input on a rank."""
    split = {Split.COLUMN: table.sequence_split, Split.ROW: table.tp}.get(op.split, 1)
    if op.on_sequence:
        split = table.sequence_split
    rows = table.microbatch_size if op.per_sample else tokens
    return np.asarray(rows * op.inputs / split)


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
            parts[name] = parts[name] + tokens * width / ranks + tokens * copied
    for core in layer.operators:
        if isinstance(core, Attention):
            size = table.on_rank(core.tokens) * value * core.heads * core.output_dim / table.tp
            parts["attention"] = parts["attention"] + size
    return parts


def _products(layer: Layer) -> Iterator[tuple[int, Linear, str, int]]:
    """Products as models write them: outputs, operator, kind, and heads as in `matrices`."""
    for _, op, name in _kinds(layer):
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


def _operand_bytes(layer: Layer, op: Attention, table: PlanTable, policy: KeptPolicy) -> float:
    """Bytes of a query's, key's or value's number between forward and backward."""
    how = table.precision.quantization
    if how is None or layer.outer or not (policy.narrow_attention and op.fused):
        return float(table.precision.activation)
    return float(how.attended)


def _heads(
    op: Attention,
    table: PlanTable,
    tokens: Array,
    product: float,
    operand: float,
    *,
    ring_output: bool,
) -> Array:
    """Q, K and V, `operand` bytes each; the output is the projection's input and counted there.

    Where that is kept in 8 bit, a fused kernel still needs its own. With context parallelism and
    `ring_output` one more tensor of the output's size is kept: 7 runs on B200 (SimuMax) keep 0.8 to
    1.0 of it more in each layer than their formula without cp; which tensor it is the figures do
    not say. Blocks that are added up in place keep none; of all-to-alls see `_scores`.
    """
    value = table.precision.activation
    times = op.key_tokens / op.tokens
    width = (op.heads + times * op.kv_heads) * op.head_dim + times * op.kv_heads * op.output_dim
    output = op.heads * op.output_dim
    again = output if op.fused and product != value else 0
    ring = np.where((table.cp > 1) & ring_output & ~_by_heads(table), output, 0)
    copied = beyond_share(op.kv_heads * (op.head_dim + op.output_dim), op.kv_heads, table) * times
    beside = (again + ring) * value
    return np.asarray(tokens * (width * operand + beside) / table.tp + tokens * copied * operand)


def _by_heads(table: PlanTable) -> Flags:
    """Whether context ranks have heads of whole sequences in attention, (B,)."""
    return np.asarray((table.cp > 1) & (table.common.cp_comm_type is CpCommType.A2A))


def _scores(op: Attention, table: PlanTable) -> Array:
    """What the core itself keeps: its scores, or their sums and where ranks share heads its output.

    The projection behind it keeps the output by tokens, the core by heads.
    """
    tokens, value = table.on_rank(op.tokens), table.precision.activation
    if op.fused:  # one fp32 log-sum-exp per token and head
        output = np.where(_by_heads(table), op.output_dim * value, 0.0)
        return np.asarray((4.0 + output) * tokens * op.heads / table.tp)
    each = 2 * value + 1 if op.dropout else value
    return np.asarray(tokens * op.key_tokens * op.heads * each / table.tp)
