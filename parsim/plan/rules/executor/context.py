"""Attention whose blocks cannot be put together over context ranks."""

from __future__ import annotations

from parsim.plan.context import CpCommType
from parsim.plan.record import Plan


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
