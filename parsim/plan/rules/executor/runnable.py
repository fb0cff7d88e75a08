"""Which models and plans parsim's own executor can build, put together, run or compile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeGuard

from parsim.model.layer import Branches, Layer
from parsim.model.model import Model
from parsim.model.operators import Attention, Linear
from parsim.plan.names import CpCommType
from parsim.plan.record import Plan
from parsim.plan.rules.executor.training import (
    first_split,
    is_balanced,
    moved_between_ranks,
    wrong_split,
    wrong_training,
)


def unbuildable(model: Model) -> str | None:
    """The first part of a model that only the simulator has, or None."""
    part = next((part for layer in model.kinds for part in _simulated(layer)), None)
    return part and f"{part} can be simulated but not run yet; use a model without it"


def _simulated(layer: Layer) -> Iterator[str]:
    if layer.name in ("mamba_block", "attention_block", "mlp_block"):
        yield f"layer_pattern: layers of one part ({layer.name})"
    frozen = any(isinstance(op, Linear) and not op.trained for op in layer.operators)
    if not frozen and any(isinstance(part, Branches) for part in layer.parts):
        yield f"layers with branches ({layer.name})"
    for op in layer.operators:
        if isinstance(op, Attention) and op.value_dim is not None and op.dropout:
            yield "kv_lora_rank: latent attention with dropout"
        if isinstance(op, Attention) and op.value_dim is not None and op.window is not None:
            yield f"kv_lora_rank: latent attention with window={op.window}"
        if isinstance(op, Attention) and op.sample is not None:
            yield f"sample_length={op.sample}: attention within packed samples"
        if isinstance(op, Attention) and op.shaped and (op.dropout or not op.fused):
            what = "dropout=true" if op.dropout else "fused_attention=false"
            yield f"alibi or attention_cap: such attention with {what}"
        if isinstance(op, Attention) and op.window is not None and (op.dropout or not op.causal):
            what = "with dropout" if op.dropout else "that sees later tokens"
            yield f"window={op.window}: windowed attention {what}"


def wrong_experts(plan: Plan, model: Model) -> str | None:
    """What does not go with the experts of a layer, which are reduced over ranks of their own."""
    experts = model.experts
    if experts is None:
        return None
    if experts.bias and experts.width % plan.etp:
        return (
            f"etp={plan.etp} does not divide hidden_size={experts.width}, the width of the last "
            f"biases of experts, which are divided too; use an etp that divides it"
        )
    return None


def wrong_vocabulary(plan: Plan, model: Model) -> str | None:
    """The table and the logits are split in equal parts.

    An uneven split would train, but its largest part sets the pace, which no plan accounts for.
    """
    rows = model.lookup.vocab_size if model.lookup else 1
    if rows % plan.tp == 0:
        return None
    padded = -(-rows // plan.tp) * plan.tp
    return f"tp={plan.tp} does not divide padded_vocab_size={rows}; use padded_vocab_size={padded}"


def wrong_heads(plan: Plan, model: Model) -> str | None:
    """Stages of their own have groups of tensor ranks that copy no key-value heads."""
    core, tp = model.attention, max(plan.stage_tp)
    if not plan.runs_as_tasks or core is None or tp <= core.kv_heads:
        return None
    return (
        f"tp={tp} with num_key_value_heads={core.kv_heads}: stages of their own and pipelines "
        f"without flush copy no heads; use tp of at most {core.kv_heads}"
    )


def wrong_adapters(model: Model) -> str | None:
    """Adapters are beside products that the executor writes as the model does."""
    if model.trained is None:
        return None
    core = model.attention
    if core is not None and core.value_dim is not None:
        return "lora_rank beside kv_lora_rank: adapters of latent attention are not run yet"
    return None


def unmergeable(
    plan: Plan, *, dropout: bool, window: int | None, latent: bool = False, shaped: bool = False
) -> str | None:
    """Why the blocks of a model's attention cannot be put together over context ranks."""
    if plan.cp > 1 and shaped:
        return (
            f"cp={plan.cp}: scores that are capped or fall with distance (attention_cap, alibi) "
            f"are computed of whole sequences here; use cp=1"
        )
    if plan.cp == 1 or plan.cp_comm_type is CpCommType.A2A:
        return None  # attention itself is whole
    return _unmergeable_blocks(plan, dropout=dropout, window=window, latent=latent)


def _unmergeable_blocks(
    plan: Plan, *, dropout: bool, window: int | None, latent: bool
) -> str | None:
    """Why attention to blocks of keys, one after another, is not attention to all of them."""
    if window is not None and plan.cp_comm_type is not CpCommType.ALL_GATHER:
        return (
            f"cp={plan.cp} with window={window}: the blocks that go round the context ranks are "
            f"seen whole or from their middle on, not by a window; use cp_comm_type all_gather or "
            f"a2a, or cp=1"
        )
    if latent:
        return (
            f"cp={plan.cp}: latent attention, whose values are narrower than keys, cannot be put "
            f"together from blocks of keys here; use cp_comm_type a2a, or cp=1"
        )
    if not dropout:
        return None
    return (
        f"cp={plan.cp}: attention with dropout cannot be put together from blocks of keys here; "
        f"use cp_comm_type a2a, dropout: false in the model section, or cp=1"
    )


def unrunnable(plan: Plan, model: Model) -> str | None:
    """Why the executor refuses a plan of this model, or None."""
    if model.loss is None:
        graph = "end its graph with a node of op cross_entropy, in a model file"
        mend = "set a head" if model.branching is None else graph
        return f"{model.name} ends without a loss to train it with; {mend}"
    rules = (
        unbuildable(model),
        wrong_vocabulary(plan, model),
        wrong_experts(plan, model),
        wrong_heads(plan, model),
        wrong_adapters(model),
    )
    broken = next((message for message in rules if message is not None), None)
    return (
        broken
        or wrong_training(plan)
        or _unmergeable(plan, model)
        or wrong_split(plan)
        or moved_between_ranks(plan)
    )


def _unmergeable(plan: Plan, model: Model) -> str | None:
    """Why this model's attention cannot be put together over context ranks, or None."""
    core = model.attention
    windows = (op.window for layer in model.kinds for op in layer.operators if _windowed(op))
    return unmergeable(
        plan,
        dropout=core is not None and core.dropout,
        window=next(windows, None),
        latent=core is not None and core.value_dim is not None,
        shaped=core is not None and core.shaped,
    )


def _windowed(op: object) -> TypeGuard[Attention]:
    return isinstance(op, Attention) and op.window is not None


def uncompilable(plan: Plan, model: Model) -> str | None:
    """Why the executor does not run a plan of this model with software.compile, or None."""
    split, flat = first_split(plan), model.attention is None
    reasons = {
        "experts: how many tokens each gets changes with the step": model.experts is not None,
        f"tp={plan.tp}: collectives beside a layer's products cannot be traced": plan.tp > 1,
        f"cp={plan.cp}: messages between context ranks cannot be traced": plan.cp > 1,
        f"{plan.schedule} splits the backward (it has {split}): a compiled one is whole": bool(
            split
        ),
        f"strategy {plan.strategy.name}: its workers run eagerly": plan.strategy.own_program,
        "stages of their own and pipelines without flush: they run eagerly": plan.runs_as_tasks,
        f"{model.name}: layers that are no transformer's run eagerly": flat,
        f"schedule {plan.schedule}: what layers save is sent to another rank": is_balanced(plan),
    }
    reason = next((text for text, holds in reasons.items() if holds), None)
    return reason and f"software.compile=true with {reason}; use compile: false"
