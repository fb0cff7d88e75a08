"""How a stack moves tokens to experts, and what these run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from parsim.cost.software.habits.by_device import for_device

DISPATCHERS = ("alltoall", "deepep", "hybridep")
"""What moves tokens to experts (`cost/layer/mixture/dispatch.py`)."""

EXPERT_CHOICES = ("drawn", "consecutive")
"""How a token's experts lie among all, as `Routing` in the same file counts them."""


@dataclass(frozen=True, kw_only=True)
class ExpertHabits:
    """How a stack moves tokens to experts, and what these run."""

    # What moves tokens to experts: "alltoall" sends a copy for each expert, "deepep" and "hybridep"
    # one for each rank that holds any of a token's experts (`cost/layer/mixture/dispatch.py`).
    expert_dispatcher: str
    # How a token's experts lie among all: "drawn" evenly, or "consecutive" ones, as some benchmarks
    # deal them out.
    expert_choice: str
    # Share of moving tokens to experts and back that hides beside compute, by the start of a device
    # id (or "default").
    expert_overlap: Mapping[str, float] = field(hash=False)
    # Launches around a layer's experts, in either direction, that its exchanges take beside another
    # micro-batch's compute.
    overlap_launches: float
    # Tokens of the busiest rank's experts over the mean.
    expert_imbalance: float
    # Bytes a second that each multiprocessor moves in kernels that gather rows or compute much for
    # each value: around experts' products, and Mamba-2's scan (0: as much as the memory).
    row_rate: float
    # Whether products, activation, bias and casts of experts are fused kernels.
    fused_experts: bool
    # Host seconds of a kernel's launch around experts.
    expert_launch: float
    # Those where tokens of each expert are padded to a capacity, so that shapes are known.
    padded_launch: float

    def expert_hidden(self, device_id: str) -> float:
        """Share of moving tokens to experts and back that hides beside compute."""
        return float(for_device(self.expert_overlap, device_id))
