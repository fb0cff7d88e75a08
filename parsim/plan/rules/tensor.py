"""Rules of tensor parallelism: what it must divide."""

from __future__ import annotations

from math import gcd

from parsim.cluster.hardware import Cluster
from parsim.model.model import Model
from parsim.model.operators import Experts, Linear, Split
from parsim.plan.divisors import divisors, listed
from parsim.plan.record import Plan

KEY_VALUE_HEADS = "num_key_value_heads"


def tensor_splits(model: Model) -> dict[str, int]:
    """What tensor parallelism must divide, by its name in a config file."""
    attention = model.attention
    splits: dict[str, int] = {}
    if attention is not None:
        splits["num_attention_heads"] = attention.heads
        splits[KEY_VALUE_HEADS] = attention.kv_heads
    for op in model.kinds[0].operators if model.kinds else ():
        if isinstance(op, Linear) and op.name == "fc2" and op.split is Split.ROW:
            splits["ffn_hidden_size"] = op.inputs
    return splits


def is_splittable(model: Model) -> bool:
    """Whether any of a model's matrices can be divided over tensor-parallel ranks."""
    return any(
        isinstance(op, Linear | Experts) and getattr(op, "split", None) is not Split.NONE
        for layer in model.kinds
        for op in layer.operators
    )


def tensor_rules(plan: Plan, model: Model, cluster: Cluster) -> str | None:
    """Heads, widths and tokens that tensor-parallel ranks divide evenly."""
    for degree in dict.fromkeys((plan.tp, *plan.stage_tp)):
        message = _split(degree, model)
        if message is not None:
            return message
    if plan.sequence_parallel and plan.tp == 1:
        return "sequence_parallel=true needs tp > 1; use sequence_parallel=false with tp=1"
    if plan.sequence_parallel and model.tokens % plan.tp:
        return (
            f"sequence_parallel=true: tp={plan.tp} does not divide seq_len={model.tokens}; "
            f"allowed: {listed(divisors(model.tokens, 1024))}"
        )
    return None


def tensor_degrees(model: Model) -> list[int]:
    """Degrees of tensor parallelism that a model's sizes allow.

    They divide heads and widths. Key-value heads they divide or are a multiple of: then each head
    stands on several ranks, see `parsim.model.shared_heads`.
    """
    splits = tensor_splits(model)
    heads = splits.pop(KEY_VALUE_HEADS, 1)
    common = divisors(gcd(*splits.values())) if splits else [1]
    return [tp for tp in common if goes_with(tp, heads)]


def goes_with(tp: int, heads: int) -> bool:
    """Whether so many ranks share out so many key-value heads, or each head has as many ranks."""
    return heads % tp == 0 or tp % heads == 0


def _split(tp: int, model: Model) -> str | None:
    """What of a model so many tensor-parallel ranks cannot split."""
    if tp > 1 and not is_splittable(model):
        return f"tp={tp}: {model.name} has no matrices that tensor parallelism splits; use tp=1"
    for name, size in tensor_splits(model).items():
        shared = name == KEY_VALUE_HEADS
        if size % tp == 0 or (shared and goes_with(tp, size)):
            continue
        wrong = "neither divides nor is a multiple of" if shared else "does not divide"
        return f"tp={tp} {wrong} {name}={size}; allowed: {listed(tensor_degrees(model))}"
    return None
