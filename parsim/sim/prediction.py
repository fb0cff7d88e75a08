"""What parsim says of one plan: times, fractions, memory, and where each number came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from parsim.plan import Plan
from parsim.sim.interval import COVERAGE, Interval
from parsim.sim.known_errors import Standing
from parsim.sim.reserved import PRESSED
from parsim.timeline import Timeline

SCHEMA_VERSION = 1

BUBBLE_DEFINITION = (
    "bubble_fraction = idle time of a rank's compute stream inside the pipeline phase over that "
    "phase's length, mean over ranks; bubble_overhead = the same idle time over busy time"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotUse:
    """What one pipeline rank of alike replicas of a mixed cluster is and does; seconds, bytes.

    `groups` and `devices` are the nodes and devices that its ranks lie on. `busy` is the time of
    its actions and `end` that of the last one. `usable` is the memory of its smallest device that
    is left for training.
    """

    pipeline_rank: int
    replicas: tuple[int, ...]
    groups: tuple[str, ...]
    devices: tuple[str, ...]
    layers: int
    microbatches: int
    busy: float
    end: float
    peak_allocated: float
    usable: float

    def to_json(self) -> dict[str, Any]:
        """Plain data with units in the names."""
        return {
            "pipeline_rank": self.pipeline_rank,
            "replicas": list(self.replicas),
            "node_groups": list(self.groups),
            "devices": list(self.devices),
            "layers": self.layers,
            "num_microbatches": self.microbatches,
            "busy_s": self.busy,
            "pipeline_end_s": self.end,
            "peak_allocated_bytes": self.peak_allocated,
            "usable_memory_bytes": self.usable,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """One simulated step; seconds and bytes.

    `interval` is to hold the measured step time in 80 % of cases; it follows from `standing`.
    `breakdown` sums to `step_time`.
    `peak_allocated` has one entry per pipeline rank, and so have
    `peak_reserved`, what the allocator takes for it, and `memory_by_rank`, its parts; `memory` are
    those of the rank with the highest peak, and `activations` the parts of its activations.
    `peak_interval` holds the highest peak in 80 % of cases, by `memory_evidence`, in words
    `memory_basis`. `context` is what the driver keeps beside, `capacity` the device's memory.
    `notes` say where device or system constants come from the catalog alone.

    On a mixed cluster `slots` has what each kind of device does, entries per pipeline rank are
    those of the replica that needs the most, and `context` and `capacity` are those of the device
    with the least memory to spare.
    """

    plan: Plan
    step_time: float
    interval: Interval
    standing: Standing
    pipeline_time: float
    tokens_per_second: float
    mfu: float
    hfu: float
    peak_flops: float
    bubble_fraction: float
    bubble_overhead: float
    device_span: float
    breakdown: Mapping[str, float]
    peak_allocated: tuple[float, ...]
    peak_reserved: tuple[float, ...]
    memory: Mapping[str, float]
    memory_by_rank: tuple[Mapping[str, float], ...]
    activations: Mapping[str, float]
    peak_interval: tuple[float, float]
    memory_evidence: str
    memory_basis: str
    context: float
    capacity: float
    notes: tuple[str, ...]
    timeline: Timeline | None = None
    slots: tuple[SlotUse, ...] = ()

    @property
    def worst_rank(self) -> int:
        """Pipeline rank with the highest memory peak, or the least memory to spare."""
        if self.slots:
            return self.worst_slot.pipeline_rank
        return max(range(len(self.peak_allocated)), key=self.peak_allocated.__getitem__)

    @property
    def worst_slot(self) -> SlotUse:
        """Of a mixed cluster, where memory is fullest."""
        return max(self.slots, key=lambda slot: slot.peak_allocated / slot.usable)

    @property
    def usable(self) -> float:
        """Memory of the device, the fullest one, that is left for training, bytes."""
        return self.capacity - self.context

    def fits(self, margin: float = 0.0) -> bool:
        """Whether every rank's peak is within its device's memory less a share of it."""
        if self.slots:
            return all(slot.peak_allocated <= slot.usable * (1.0 - margin) for slot in self.slots)
        return max(self.peak_allocated) <= self.usable * (1.0 - margin)

    @property
    def memory_notes(self) -> tuple[str, ...]:
        """A warning where reserved memory and context come near the device's memory."""
        share = (self.peak_reserved[self.worst_rank] + self.context) / self.capacity
        if share <= PRESSED:
            return ()
        return (
            f"peak memory (reserved and context) is above {100 * PRESSED:.0f} % of the device's: "
            "it may be slower than predicted (allocator retries)",
        )

    def to_json(self) -> dict[str, Any]:
        """The document that `parsim simulate --json` prints."""
        return {
            "schema_version": SCHEMA_VERSION,
            "plan": self.plan.to_json(),
            "step_time_s": self.step_time,
            "step_time_interval_s": self.interval.to_json(),
            "interval_coverage": COVERAGE,
            "interval_basis": self.interval.basis,
            "pipeline_time_s": self.pipeline_time,
            "device_span_s": self.device_span,
            "tokens_per_s": self.tokens_per_second,
            "mfu": self.mfu,
            "hfu": self.hfu,
            "peak_flops_per_s": self.peak_flops,
            "bubble_fraction": self.bubble_fraction,
            "bubble_overhead": self.bubble_overhead,
            "bubble_definition": BUBBLE_DEFINITION,
            "peak_allocated_bytes": list(self.peak_allocated),
            "peak_allocated_interval_bytes": list(self.peak_interval),
            "peak_memory_evidence": self.memory_evidence,
            "peak_memory_interval_basis": self.memory_basis,
            "peak_reserved_bytes": list(self.peak_reserved),
            "context_bytes": self.context,
            "device_memory_bytes": self.capacity,
            "breakdown_s": dict(self.breakdown),
            "memory_bytes": dict(self.memory),
            "memory_by_rank_bytes": [dict(parts) for parts in self.memory_by_rank],
            "activations_by_layer_bytes": dict(self.activations),
            **({"rank_groups": [slot.to_json() for slot in self.slots]} if self.slots else {}),
            "notes": [*self.notes, *self.memory_notes],
        }
