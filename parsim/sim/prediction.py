"""What parsim says of one plan: times, fractions, memory, and where each number came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from parsim.plan import Plan
from parsim.results import Result
from parsim.sim.confidence.interval import Interval
from parsim.sim.confidence.known_errors import COVERAGE, Standing
from parsim.sim.confidence.memory_fit import Fit, Margin
from parsim.sim.fullest import FullestRank
from parsim.sim.memory.reserved import PRESSED
from parsim.sim.rounds.figures import StrategyFigures
from parsim.timelines.timeline import Timeline
from parsim.units import format_bytes, format_seconds

SCHEMA_VERSION = 1

BUBBLE_DEFINITION = (
    "bubble_fraction = idle time of a rank's compute stream inside the pipeline phase over that "
    "phase's length, mean over ranks; bubble_overhead = the same idle time over busy time"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankUse:
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


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Prediction(Result):
    """One simulated step; seconds and bytes.

    `pipeline_time` is the part of `step_time` from the first action to the end of the last,
    `device_span` the longest time between a rank's first and last action. `mfu` counts the model's
    FLOPs, `hfu` recomputed ones too, both over `peak_flops` (FLOP/s of a device, mean). The bubble
    is idle time in the pipeline's phase: `bubble_fraction` of the phase, `bubble_overhead` over
    busy time.
    `interval` is to hold the measured step time in 80 % of cases; it follows from `standing`.
    `breakdown` sums to `step_time`. `tokens_per_second` counts what `speed_unit` says: the samples
    of a model that takes no tokens.
    `peak_allocated` has one entry per pipeline rank, and so have
    `peak_reserved`, what the allocator takes for it, and `memory_by_rank`, its parts; `memory` are
    those of the `fullest` rank, and `activations` the parts of its activations.
    `peak_interval` holds its peak in 80 % of cases, by `memory_evidence`, in words
    `memory_basis`. `fit` says whether every rank's peak fits its devices with that `margin`.
    `host_bytes` are activations and optimizer states in the memory of one node's hosts,
    which have `host_memory` (None: nobody said).
    `notes` say where device or system constants come from the catalog alone, `checked` how well
    discrete events agreed, where they were asked for.

    On a mixed cluster `rank_uses` has what each kind of device does, and entries per pipeline rank
    are those of the replica that needs the most.

    Of a plan whose replicas do not all-reduce, `strategy` has what else is asked of it; such a plan
    has no pipeline, and entries per rank are those of devices of each role.
    """

    plan: Plan
    step_time: float
    interval: Interval
    standing: Standing
    pipeline_time: float
    tokens_per_second: float
    speed_unit: str
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
    fullest: FullestRank
    fit: Fit
    margin: Margin
    notes: tuple[str, ...]
    host_bytes: float = 0.0
    host_memory: float | None = None
    timeline: Timeline | None = None
    rank_uses: tuple[RankUse, ...] = ()
    strategy: StrategyFigures | None = None
    checked: str = field(default="", compare=False)

    @property
    def headline(self) -> str:
        """Step time with its interval, utilisation and memory."""
        low, high = format_seconds(self.interval.low), format_seconds(self.interval.high)
        return (
            f"{self.plan.label()}: {format_seconds(self.step_time)} (80 % {low} to {high}), "
            f"MFU {100 * self.mfu:.1f} %, bubble {100 * self.bubble_fraction:.1f} %, "
            f"{format_bytes(self.fullest.peak_allocated)} of {format_bytes(self.fullest.usable)}: "
            f"{self.fit}"
        )

    @property
    def memory_notes(self) -> tuple[str, ...]:
        """A warning where reserved memory and context come near the device's memory."""
        fullest = self.fullest
        if (fullest.peak_reserved + fullest.context) / fullest.capacity <= PRESSED:
            return ()
        return (
            f"peak memory (reserved and context) is above {100 * PRESSED:.0f} % of the device's: "
            "it may be slower than predicted (allocator retries)",
        )

    @property
    def mfu_notes(self) -> tuple[str, ...]:
        """How a utilisation can be above 100 %, where it is."""
        if self.mfu <= 1.0:
            return ()
        return (
            "MFU above 100 %: operations are counted as of direct convolutions, and Winograd's and "
            "FFT kernels (fp32) need fewer; without convolutions the stated peak is too low",
        )

    @property
    def all_notes(self) -> tuple[str, ...]:
        """Everything that a reader must know of the numbers."""
        checked = (self.checked,) if self.checked else ()
        return (*self.notes, *self.memory_notes, *self.mfu_notes, *checked)

    def to_json(self) -> dict[str, Any]:
        """The document that `parsim simulate --json` prints."""
        groups = [use.to_json() for use in self.rank_uses]
        return {
            "schema_version": SCHEMA_VERSION,
            "plan": self.plan.to_json(),
            **self._speed_json(),
            **self._bubble_json(),
            **self._peak_json(),
            **self._host_json(),
            **self.margin.to_json(),
            "breakdown_s": dict(self.breakdown),
            "memory_bytes": dict(self.memory),
            "memory_by_rank_bytes": [dict(parts) for parts in self.memory_by_rank],
            "activations_by_layer_bytes": dict(self.activations),
            **({"rank_groups": groups} if groups else {}),
            **({"strategy": self.strategy.to_json()} if self.strategy else {}),
            "notes": list(self.all_notes),
        }

    def _speed_json(self) -> dict[str, Any]:
        """The step's seconds with their interval, and what devices do in them."""
        return {
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
        }

    def _bubble_json(self) -> dict[str, Any]:
        """Idle time in the pipeline by both definitions."""
        return {
            "bubble_fraction": self.bubble_fraction,
            "bubble_overhead": self.bubble_overhead,
            "bubble_definition": BUBBLE_DEFINITION,
        }

    def _peak_json(self) -> dict[str, Any]:
        """Bytes at the peak of every rank, and whether its device has them."""
        return {
            "peak_allocated_bytes": list(self.peak_allocated),
            "peak_allocated_interval_bytes": list(self.peak_interval),
            "peak_memory_evidence": self.memory_evidence,
            "peak_memory_interval_basis": self.memory_basis,
            "peak_reserved_bytes": list(self.peak_reserved),
            "fullest_rank": self.fullest.to_json(),
            "context_bytes": self.fullest.context,
            "device_memory_bytes": self.fullest.capacity,
            "usable_memory_bytes": self.fullest.usable,
            "memory_fit": self.fit.value,
        }

    def _host_json(self) -> dict[str, Any]:
        """Bytes in the hosts of a node, where the plan has any there."""
        if not (self.plan.offload_layers or self.plan.optimizer_offload):
            return {}
        return {
            "node_host_bytes": self.host_bytes,
            "node_host_memory_bytes": self.host_memory,
        }

    def records(self) -> list[dict[str, Any]]:
        """One row: the plan's fields, the times, shares and bytes, and the parts of the step."""
        numbers = {name: x for name, x in self.to_json().items() if isinstance(x, int | float)}
        return [
            {
                **self.plan.to_json(),
                **numbers,
                "step_time_low_s": self.interval.low,
                "step_time_high_s": self.interval.high,
                "fullest_rank_peak_allocated_bytes": self.fullest.peak_allocated,
                "memory_fit": self.fit.value,
                **{f"{name}_s": seconds for name, seconds in self.breakdown.items()},
            }
        ]
