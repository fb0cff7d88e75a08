"""What a stack repeats where a plan recomputes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class RecomputeHabits:
    """What a stack repeats where a plan recomputes."""

    # What selective recomputation repeats: "attention" or "half-products".
    selective: str
    # Whether what a plan names to be repeated is one region of a compiler
    # (`kept/recomputed_modules.py`).
    recompute_region: bool
    # Whether the last of several micro-batches is recomputed like the others.
    recomputes_last: bool
    # Whether full recomputation keeps what enters a stage, not a layer.
    checkpoints_stages: bool
