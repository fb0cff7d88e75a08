"""Bytes that a layer keeps between forward and backward of one micro-batch, per plan.

Source: Korthikanti et al. 2022 (arXiv:2205.05198), section 4; for a GPT layer without fused
attention the sum is s b h (10 + 24/t + 5 a s / (h t)), equal to the paper's equation 2.
"""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array
from parsim.cost.layer.kept.operator_tensors import (
    KINDS,
    Parts,
    border_bytes,
    every_second_product,
    kept_tensors,
)
from parsim.cost.software import Software
from parsim.model.layer import Layer
from parsim.plan import PlanTable, Recompute


def kept_policy(software: Software) -> dict[str, bool]:
    """What a software stack keeps, as `kept_parts` takes it."""
    return {
        "half_products": software.selective == "half-products",
        "keeps_output": software.keeps_output,
        "ring_output": software.context_keeps_output,
    }


def kept_bytes(layer: Layer, table: PlanTable, **policy: bool) -> Array:
    """Bytes a layer keeps under each plan's recomputation policy, (B,): all of `kept_parts`."""
    return _total(kept_parts(layer, table, **policy), table)


def kept_parts(
    layer: Layer,
    table: PlanTable,
    *,
    half_products: bool = False,
    keeps_output: bool = False,
    ring_output: bool = True,
) -> Parts:
    """Bytes a layer keeps under each plan's recomputation policy, by kind.

    Full recomputation keeps the layer's input only; selective drops the attention scores, or
    with `half_products` keeps the input, the attention's output and every second product's, the
    layer's last one only with `keeps_output`: nothing in backward needs it, so a compiler drops
    it, while operator-level checkpointing of eager PyTorch caches it all the same.
    """
    again = frozenset(table.common.recompute_modules)
    whole = whole_parts(layer, table, again, ring_output=ring_output)
    entering = border_bytes(table, layer.inputs)
    chosen = {name: part for name, part in whole.items() if name != "attention_scores"}
    if half_products:
        chosen = every_second_product(layer, table, keeps_output=keeps_output)
        chosen["layer_inputs"] = entering
    selective = table.recompute == Recompute.SELECTIVE
    full = table.recompute == Recompute.FULL
    zero = np.zeros(len(table))
    out = {}
    for name in KINDS:
        kept = np.where(selective, chosen.get(name, zero), whole.get(name, zero))
        out[name] = np.where(full, entering if name == "layer_inputs" else 0.0, kept)
    return out


def whole_bytes(layer: Layer, table: PlanTable, *, ring_output: bool = True) -> Array:
    """Bytes a layer keeps when nothing is recomputed, (B,)."""
    return _total(whole_parts(layer, table, ring_output=ring_output), table)


def whole_parts(
    layer: Layer,
    table: PlanTable,
    again: frozenset[str] = frozenset(),
    *,
    ring_output: bool = True,
) -> Parts:
    """Bytes a layer keeps when nothing is recomputed but the modules `again`, by kind.

    A matrix product keeps its input (in 8 bit where the precision says so), an elementwise
    operator what its formula names, attention Q, K, V and its scores.
    """
    out: Parts = {}
    for _, name, size in kept_tensors(layer, table, again, ring_output=ring_output):
        out[name] = out[name] + size if name in out else size
    return out


def _total(parts: Parts, table: PlanTable) -> Array:
    return np.asarray(sum(parts.values(), start=np.zeros(len(table))))
