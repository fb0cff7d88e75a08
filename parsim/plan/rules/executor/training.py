"""Plans whose gradients or numbers the executor would get wrong, some by their schedule alone."""

from __future__ import annotations

import re
from collections.abc import Callable

from parsim.model.model import Model
from parsim.plan.names import BALANCED, SPLIT, WITHOUT_FLUSH
from parsim.plan.precision import FULL, precision
from parsim.plan.record import Plan


def wrong_training(plan: Plan) -> str | None:
    """Why gradients or numbers would be wrong, or added up otherwise than asked; or None.

    What depends on the schedule's actions is apart, see `freed` and `rounded`.
    """
    rules: tuple[Callable[[Plan], str | None], ...] = (
        _precision,
        _parts_of_layers,
        _axes,
        _sums,
    )
    return next((message for rule in rules if (message := rule(plan)) is not None), None)


def wrong_update(plan: Plan, model: Model, clip: float) -> str | None:
    """What a pipeline without flush, whose stages update one by one, cannot train with; or None."""
    if plan.schedule not in WITHOUT_FLUSH:
        return None
    if clip:
        return (
            f"schedule={plan.schedule!r}: no rank knows the norm of a whole gradient while others "
            f"are ahead, but training.clip={clip:g}; use clip: 0"
        )
    if model.graph is None and model.tied_embeddings:
        return (
            f"schedule={plan.schedule!r}: the two copies of {model.name}'s tied table would be "
            f"updated at different times; use tied_embeddings: false in the model section"
        )
    return None


def _precision(plan: Plan) -> str | None:
    if precision(plan.precision).quantization is not None:
        return (
            f"precision={plan.precision!r}: products of 8 bit or less are predicted but cannot be "
            f"run here; use precision='bf16' or 'bf16_amp'"
        )
    if precision(plan.precision).moment < FULL:
        return (
            f"precision={plan.precision!r}: optimizer states in 16 bit are predicted but cannot be "
            f"run here; use precision='bf16'"
        )
    if plan.precision == "fp16" and plan.gradient_precision == "same":
        return (
            "precision='fp16' with gradient_precision='same': small gradients would become zero "
            "when they are divided by the scale of the loss; use gradient_precision='fp32'"
        )
    return None


def _parts_of_layers(plan: Plan) -> str | None:
    asked = {
        "recompute_modules": "use recompute=none, selective or full",
        "offload_modules": f"leave it out, so that offload_layers={plan.offload_layers} moves "
        f"whole layers",
    }
    for field, instead in asked.items():
        if names := "+".join(getattr(plan, field)):
            return f"{field}={names}: parts of layers can be simulated but not run yet; {instead}"
    return None


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


def _sums(plan: Plan) -> str | None:
    """What `fully_shard` cannot add up as the plan says.

    It keeps shares of gradients in the dtype of its shards, fp32, and sums over dp_replicate once
    a step; until then it adds up what it sends.
    """
    if not gathers_16_bit(plan):
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


def gathers_16_bit(plan: Plan) -> bool:
    """Whether `fully_shard` gathers fp32 shares as 16-bit parameters."""
    return plan.zero_stage >= 2 and precision(plan.precision).gathered == 2


def wrong_split(plan: Plan) -> str | None:
    """Both rules for a plan whose schedule is named or written, not yet built."""
    first = first_split(plan)
    return (
        None if first is None else freed(plan, plan.schedule, first) or rounded(plan, plan.schedule)
    )


def first_split(plan: Plan) -> str | None:
    """The first action I or W of a plan's schedule, be that named or written; or None."""
    if plan.pp == 1:
        return None
    if plan.actions is None:
        return "0I0" if plan.schedule in SPLIT else None
    match = re.search(r"\b\d+[IW]\d+\b", plan.actions)
    return match[0] if match else None


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
    if not gathers_16_bit(plan):
        return None
    return (
        f"{schedule} splits the backward (I and W), and precision={plan.precision!r} with "
        f"zero_stage={plan.zero_stage} would then add up gradients in "
        f"{precision(plan.precision).compute}; use zero_stage 0 or 1, precision='fp32', or a "
        f"schedule with full backwards (B)"
    )


def moved_between_ranks(plan: Plan) -> str | None:
    """Parameters that come and go would be sent to another rank for activations."""
    if not is_balanced(plan) or plan.zero_stage < 2:
        return None
    return (
        f"schedule={plan.schedule!r} keeps what is saved for backward on another rank, and "
        f"zero_stage={plan.zero_stage} saves gathered parameters, which are freed meanwhile; use "
        f"zero_stage 0 or 1, or schedule='1f1b', whose order it has"
    )


def is_balanced(plan: Plan) -> bool:
    """Whether its schedule keeps activations of some ranks on others."""
    return plan.pp > 1 and plan.actions is None and plan.schedule in BALANCED
