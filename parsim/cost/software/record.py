"""A software stack as a record: all of its habits, and why each is what it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from parsim.cost.software.habits import (
    ConvolutionHabits,
    ExchangeHabits,
    ExpertHabits,
    HostHabits,
    KernelHabits,
    MemoryHabits,
    OptimizerHabits,
    PlanHabits,
    QuantizedHabits,
    RecomputeHabits,
    ShardingHabits,
)


@dataclass(frozen=True, kw_only=True)
class Software(
    HostHabits,
    KernelHabits,
    ConvolutionHabits,
    QuantizedHabits,
    RecomputeHabits,
    MemoryHabits,
    ExchangeHabits,
    ShardingHabits,
    ExpertHabits,
    OptimizerHabits,
    PlanHabits,
):
    """One software stack: what it does, and what that costs hosts, devices and memory.

    Its fields are those of the kinds of habits above, under the names that `software.yaml` and
    scenarios (`--set software.expert_imbalance=1.2`) give them.
    """

    # Its key in `software.yaml`.
    id: str
    # A sentence about it.
    description: str
    # Why each field is what it is, by field.
    reasons: Mapping[str, str] = field(default_factory=dict, hash=False)
