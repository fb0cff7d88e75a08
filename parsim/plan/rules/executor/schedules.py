"""Schedules that do not go with a plan's sharding or precision when the executor runs them."""

from __future__ import annotations

import re

from parsim.plan.precision import precision
from parsim.plan.record import Plan
from parsim.plan.rules.executor.training import gathers_16_bit
from parsim.plan.schedule_names import BALANCED, SPLIT


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
