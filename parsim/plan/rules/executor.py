"""Which legal plans parsim's own executor can run, asked where the software is that executor.

So search, simulate, check and run agree. The executor asks the same rules again, with what only
it knows beside them: the backend, the ranks of this machine, a lowered schedule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TypeGuard

from parsim.model.layer import Branches, Layer
from parsim.model.model import Model
from parsim.model.operators import Attention
from parsim.plan.context import CpCommType
from parsim.plan.precision import precision
from parsim.plan.record import Plan
from parsim.plan.schedule_names import BALANCED, SPLIT


def unrunnable(plan: Plan, model: Model) -> str | None:
    """Why the executor refuses a plan of this model, or None."""
    if model.loss is None:
        graph = "end its graph with a node of op cross_entropy, in a model file"
        mend = "set a head" if model.branching is None else graph
        return f"{model.name} ends without a loss to train it with; {mend}"
    core = model.attention
    windows = (op.window for layer in model.kinds for op in layer.operators if _windowed(op))
    rules = (
        unbuildable(model),
        _vocabulary(plan, model),
        wrong_experts(plan, model),
        _heads_of_stages(plan, model),
    )
    broken = next((message for message in rules if message is not None), None)
    return (
        broken
        or wrong_training(plan)
        or unmergeable(
            plan,
            dropout=core is not None and core.dropout,
            window=next(windows, None),
            latent=core is not None and core.value_dim is not None,
        )
        or _split_backward(plan)
        or _moved_between_ranks(plan)
    )


def uncompilable(plan: Plan, model: Model) -> str | None:
    """Why the executor does not run a plan of this model with software.compile, or None."""
    split, flat = _first_split(plan), model.attention is None
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
        f"schedule {plan.schedule}: what layers save is sent to another rank": _is_balanced(plan),
    }
    reason = next((text for text, holds in reasons.items() if holds), None)
    return reason and f"software.compile=true with {reason}; use compile: false"


def unbuildable(model: Model) -> str | None:
    """The first part of a model that only the simulator has, or None."""
    part = next((part for layer in model.kinds for part in _simulated(layer)), None)
    return part and f"{part} can be simulated but not run yet; use a model without it"


def _simulated(layer: Layer) -> Iterator[str]:
    if layer.name in ("mamba_block", "attention_block", "mlp_block"):
        yield f"layer_pattern: layers of one part ({layer.name})"
    if any(isinstance(part, Branches) for part in layer.parts):
        yield f"layers with branches ({layer.name})"
    for op in layer.operators:
        if isinstance(op, Attention) and op.value_dim is not None and op.dropout:
            yield "kv_lora_rank: latent attention with dropout"
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


def wrong_training(plan: Plan) -> str | None:
    """Why gradients or numbers would be wrong, or added up otherwise than asked; or None.

    What depends on the schedule's actions is apart, see `freed` and `rounded`.
    """
    rules: tuple[Callable[[Plan], str | None], ...] = (
        _precision,
        _modules,
        _offloaded,
        _axes,
        _sums,
    )
    return next((message for rule in rules if (message := rule(plan)) is not None), None)


def _precision(plan: Plan) -> str | None:
    if precision(plan.precision).quantization is not None:
        return (
            f"precision={plan.precision!r}: products of 8 bit or less are predicted but cannot be "
            f"run here; use precision='bf16' or 'bf16_amp'"
        )
    if plan.precision == "fp16" and plan.gradient_precision == "same":
        return (
            "precision='fp16' with gradient_precision='same': small gradients would become zero "
            "when they are divided by the scale of the loss; use gradient_precision='fp32'"
        )
    return None


def _modules(plan: Plan) -> str | None:
    names = "+".join(plan.recompute_modules)
    return (
        f"recompute_modules={names}: parts of layers can be simulated but not run yet; use "
        f"recompute=none, selective or full"
        if names
        else None
    )


def _offloaded(plan: Plan) -> str | None:
    names = "+".join(plan.offload_modules)
    return (
        f"offload_modules={names}: parts of layers can be simulated but not run yet; leave it out, "
        f"so that offload_layers={plan.offload_layers} moves whole layers"
        if names
        else None
    )


def _axes(plan: Plan) -> str | None:
    if plan.replica_microbatches is not None and _in_lockstep(plan):
        return (
            f"replica_microbatches={list(plan.replica_microbatches)} can be run with data "
            f"parallelism alone, where replicas meet once a step: use tp=1, pp=1, cp=1, ep=1, "
            f"zero_stage 0 or 1 and sync_batch_norm=false, or leave it out"
        )
    if plan.zero_stage == 0 and plan.dp_shard > 1:
        return (
            f"zero_stage=0 with dp_shard={plan.dp_shard}: nothing would average the gradients "
            f"over dp_shard; use dp_replicate={plan.dp}, dp_shard=1"
        )
    if plan.sequence_parallel and plan.tp == 1:
        return "sequence_parallel=true needs tp > 1; use sequence_parallel=false"
    return None


def _in_lockstep(plan: Plan) -> bool:
    """Whether ranks exchange something within every micro-batch."""
    split = max(plan.tp, plan.pp, plan.cp, plan.ep) > 1
    return split or plan.zero_stage >= 2 or plan.sync_batch_norm


def _windowed(op: object) -> TypeGuard[Attention]:
    return isinstance(op, Attention) and op.window is not None


def unmergeable(
    plan: Plan, *, dropout: bool, window: int | None, latent: bool = False
) -> str | None:
    """Why the blocks of a model's attention cannot be put together over context ranks."""
    if plan.cp == 1 or plan.cp_comm_type is CpCommType.A2A:
        return None  # attention itself is whole
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


def _gathers_16_bit(plan: Plan) -> bool:
    """Whether `fully_shard` gathers fp32 shares as 16-bit parameters."""
    return plan.zero_stage >= 2 and precision(plan.precision).gathered == 2


def _sums(plan: Plan) -> str | None:
    """What `fully_shard` cannot add up as the plan says.

    It keeps shares of gradients in the dtype of its shards, fp32, and sums over dp_replicate once
    a step; until then it adds up what it sends.
    """
    if not _gathers_16_bit(plan):
        return None
    where = f"precision={plan.precision!r} with zero_stage={plan.zero_stage}"
    if plan.gradient_precision == "same" and precision(plan.precision).parameter == 2:
        return (
            f"{where} and gradient_precision='same': shares of gradients are kept in fp32 there, "
            f"which takes twice the bytes; use gradient_precision='fp32', or zero_stage 0 or 1"
        )
    narrow = plan.reduce_precision != "fp32"
    if narrow and plan.dp_replicate > 1 and plan.num_microbatches > 1:
        return (
            f"{where}, dp_replicate={plan.dp_replicate} and "
            f"reduce_precision={plan.reduce_precision!r}: gradients of the "
            f"{plan.num_microbatches} micro-batches would be added up in "
            f"{precision(plan.precision).compute}, not in fp32; use "
            f"reduce_precision='fp32', dp_replicate=1, or zero_stage 0 or 1"
        )
    return None


def _vocabulary(plan: Plan, model: Model) -> str | None:
    """The table and the logits are split in equal parts.

    An uneven split would train, but its largest part sets the pace, which no plan accounts for.
    """
    rows = model.lookup.vocab_size if model.lookup else 1
    if rows % plan.tp == 0:
        return None
    padded = -(-rows // plan.tp) * plan.tp
    return f"tp={plan.tp} does not divide padded_vocab_size={rows}; use padded_vocab_size={padded}"


def _moved_between_ranks(plan: Plan) -> str | None:
    """Parameters that come and go would be sent to another rank for activations."""
    if not _is_balanced(plan) or plan.zero_stage < 2:
        return None
    return (
        f"schedule={plan.schedule!r} keeps what is saved for backward on another rank, and "
        f"zero_stage={plan.zero_stage} saves gathered parameters, which are freed meanwhile; use "
        f"zero_stage 0 or 1, or schedule='1f1b', whose order it has"
    )


def _is_balanced(plan: Plan) -> bool:
    return plan.pp > 1 and plan.actions is None and plan.schedule in BALANCED


def _heads_of_stages(plan: Plan, model: Model) -> str | None:
    """Stages of their own have groups of tensor ranks that copy no key-value heads."""
    core, tp = model.attention, max(plan.stage_tp)
    if not plan.runs_as_tasks or core is None or tp <= core.kv_heads:
        return None
    return (
        f"tp={tp} with num_key_value_heads={core.kv_heads}: stages of their own and pipelines "
        f"without flush copy no heads; use tp of at most {core.kv_heads}"
    )


def _first_split(plan: Plan) -> str | None:
    """The first action I or W of a plan's schedule, be that named or written; or None."""
    if plan.pp == 1:
        return None
    if plan.actions is None:
        return "0I0" if plan.schedule in SPLIT else None
    match = re.search(r"\b\d+[IW]\d+\b", plan.actions)
    return match[0] if match else None


def _split_backward(plan: Plan) -> str | None:
    """Both rules for a plan whose schedule is named or written, not yet built."""
    first = _first_split(plan)
    return (
        None if first is None else freed(plan, plan.schedule, first) or rounded(plan, plan.schedule)
    )


def freed(plan: Plan, schedule: str, first: str) -> str | None:
    """Why parameters are gone when a schedule with actions I and W needs them, `first` of them."""
    if plan.zero_stage != 3:
        return None
    return (
        f"{schedule} splits the backward (it has {first}), and zero_stage=3 (fully_shard with "
        "reshard_after_forward=True) would then give wrong or no gradients: the parameters are "
        "freed between F, I and W; use zero_stage=2, or a schedule with full backwards (B)"
    )


def rounded(plan: Plan, schedule: str) -> str | None:
    """Why a schedule with actions I and W would add up gradients in 16 bit."""
    if not _gathers_16_bit(plan):
        return None
    return (
        f"{schedule} splits the backward (I and W), and precision={plan.precision!r} with "
        f"zero_stage={plan.zero_stage} would then add up gradients in "
        f"{precision(plan.precision).compute}; use zero_stage 0 or 1, precision='fp32', or a "
        f"schedule with full backwards (B)"
    )
