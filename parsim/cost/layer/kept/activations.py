"""Bytes that a layer keeps between forward and backward of one micro-batch, here or on the host.

Source: Korthikanti et al. 2022 (arXiv:2205.05198), section 4; for a GPT layer without fused
attention the sum is s b h (10 + 24/t + 5 a s / (h t)), equal to the paper's equation 2.
"""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array
from parsim.cost.layer.kept.half_products import Parts, every_second_product
from parsim.cost.layer.kept.operator_tensors import KINDS, border_bytes, kept_tensors
from parsim.cost.layer.kept.policy import FUSED, KeptPolicy, product_input_bytes
from parsim.cost.layer.kept.recomputed_modules import FEED_FORWARD
from parsim.cost.software import Software
from parsim.model.layer import Layer
from parsim.model.operators import Attention, Experts, Operator
from parsim.plan import PlanTable, Recompute


def kept_policy(software: Software) -> KeptPolicy:
    """What a software stack keeps, as `kept_parts` takes it."""
    return KeptPolicy(
        half_products=software.selective == "half-products",
        keeps_output=software.keeps_output,
        ring_output=software.context_keeps_output,
        region=software.recompute_region,
        narrow_attention=software.quantized_attention,
        eager=software.eager_kept,
        local_adapters=software.eager,
        cp_comm_type=software.cp_comm_type,
    )


def kept_bytes(layer: Layer, table: PlanTable, policy: KeptPolicy = FUSED) -> Array:
    """Bytes a layer keeps under each plan's recomputation policy, (B,): all of `kept_parts`."""
    return _total(kept_parts(layer, table, policy), table)


def kept_parts(layer: Layer, table: PlanTable, policy: KeptPolicy = FUSED) -> Parts:
    """Bytes a layer keeps under each plan's recomputation policy, by kind.

    Full recomputation keeps the layer's input only; selective drops the attention scores, or
    with `half_products` keeps the input, the attention's output and every second product's, the
    layer's last one only with `keeps_output`: nothing in backward needs it, so a compiler drops
    it, while operator-level checkpointing of eager PyTorch caches it all the same.
    """
    again = frozenset(table.common.recompute_modules)
    whole = whole_parts(layer, table, again, policy)
    entering = border_bytes(table, layer.inputs)
    chosen = {name: part for name, part in whole.items() if name != "attention_scores"}
    if policy.half_products:
        chosen = every_second_product(layer, table, keeps_output=policy.keeps_output)
        chosen["layer_inputs"] = entering
    selective = table.recompute == Recompute.SELECTIVE
    full = table.recompute == Recompute.FULL
    zero = np.zeros(len(table))
    out = {}
    for name in KINDS:
        kept = np.where(selective, chosen.get(name, zero), whole.get(name, zero))
        out[name] = np.where(full, entering if name == "layer_inputs" else 0.0, kept)
    return out


def whole_bytes(layer: Layer, table: PlanTable, policy: KeptPolicy = FUSED) -> Array:
    """Bytes a layer keeps when nothing is recomputed, (B,)."""
    return _total(whole_parts(layer, table, policy=policy), table)


def whole_parts(
    layer: Layer,
    table: PlanTable,
    again: frozenset[str] = frozenset(),
    policy: KeptPolicy = FUSED,
) -> Parts:
    """Bytes a layer keeps when nothing is recomputed but the modules `again`, by kind.

    A matrix product keeps its input (in 8 bit where the precision says so), an elementwise
    operator what its formula names, attention Q, K, V and its scores.
    """
    out: Parts = {}
    for _, name, size in kept_tensors(layer, table, again, policy):
        out[name] = out[name] + size if name in out else size
    return out


def _total(parts: Parts, table: PlanTable) -> Array:
    return np.asarray(sum(parts.values(), start=np.zeros(len(table))))


_MODULES = {
    "attention_norm": "attn_norm",
    **dict.fromkeys(("qkv", "q_down", "q_up", "kv_down", "kv_up"), "qkv_linear"),
    "projection": "attn_proj",
    "mlp_norm": "mlp_norm",
}
"""Operators by name, and the module that each is part of."""


def offloaded_bytes(layer: Layer, table: PlanTable, policy: KeptPolicy = FUSED) -> Array:
    """Bytes of one micro-batch that a layer moves to the host, (B,): all of `offloaded_parts`."""
    parts = offloaded_parts(layer, table, policy).values()
    return np.asarray(sum(parts, start=np.zeros(len(table))))


def offloaded_parts(layer: Layer, table: PlanTable, policy: KeptPolicy = FUSED) -> Parts:
    """Bytes that a layer which a plan names moves to the host, by the kinds of `kept_parts`.

        attn_norm        input of the norm before attention
        qkv_linear       input of the projections to queries, keys and values
        core_attn        queries, keys, values and log-sum-exps
        attn_proj        input of the projection behind attention
        mlp_norm         input of the norm before the MLP
        mlp              a plain MLP's: inputs of its products and of its activation
        expert_fc1       rows that experts' first products take in
        moe_act          rows that the activation between the experts' products takes in
        fused_group_mlp  both, and what the second products take in

    A plan that names none moves all that its layers keep, as `cpu_offloading_num_layers` does.

    Source: Megatron-Core 0.19, user guide, "Fine-Grained Activation Offloading" (each module moves
    its input; `offload_modules`), and Megatron-Bridge, "CPU Offloading" (whole layers). `mlp` is
    parsim's own: Megatron-Core's list has the parts of mixtures alone. Leaves out: that
    Megatron-Core keeps the last layer's on the device, whose backward comes at once.

    `policy` is what the stack keeps (`kept_policy`). What is computed again is not kept and so not
    moved.
    """
    modules = frozenset(table.common.offload_modules)
    if not modules:
        return kept_parts(layer, table, policy)
    again = frozenset(table.common.recompute_modules)
    parts: Parts = {}
    for op, kind, size in kept_tensors(layer, table, again, policy):
        if isinstance(op, Experts):
            moved = _of_experts(op, table, modules, again)
        elif module_of(layer, op) in modules:
            moved = size
        else:
            continue
        if kind == "attention_scores":
            moved = np.where(table.recompute == Recompute.SELECTIVE, 0.0, moved)
        parts[kind] = parts[kind] + moved if kind in parts else moved
    return parts


def module_of(layer: Layer, op: Operator) -> str:
    """The module that an operator's input is moved with; empty for what only whole layers move."""
    name = getattr(op, "name", "")
    if isinstance(op, Attention):
        return "core_attn"
    if name in FEED_FORWARD and layer.experts is None:
        return "mlp"
    return _MODULES.get(name, "")


def _of_experts(
    op: Experts, table: PlanTable, modules: frozenset[str], again: frozenset[str]
) -> Array:
    """Bytes of experts' rows that are moved, (B,): those of `expert_bytes`, by module."""
    arrived = table.on_rank(op.tokens) / table.sequence_split
    rows = np.where("moe" in again, 0.0, arrived * op.top_k * table.etp)
    f, product = op.ffn_hidden_size / table.etp, product_input_bytes(table)
    whole = "fused_group_mlp" in modules
    bytes_of_row = np.zeros(len(table))
    if whole or "expert_fc1" in modules:
        bytes_of_row = bytes_of_row + product * op.width
    if whole or "moe_act" in modules:
        bytes_of_row = bytes_of_row + table.precision.activation * op.halves * f
    if whole and "moe_act" not in again:
        bytes_of_row = bytes_of_row + product * f
    return np.asarray(rows * bytes_of_row)
