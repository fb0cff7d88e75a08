"""What is asked of a data-parallel strategy beside its step time: rates, traffic, ages, servers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Spoke = Literal["recurrence", "events"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StalenessFigures:
    """Ages of gradients in updates: mean, quantiles, the share of each age, mean by worker.

    `p50`, `p95` and `largest` are ages; `shares` has one entry for each age from 0 on.
    """

    mean: float
    p50: int
    p95: int
    largest: int
    shares: tuple[float, ...]
    by_worker: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        """The figures as plain data."""
        return {
            "mean_updates": self.mean,
            "p50_updates": self.p50,
            "p95_updates": self.p95,
            "largest_updates": self.largest,
            "shares_by_age": list(self.shares),
            "mean_updates_by_worker": list(self.by_worker),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyFigures:
    """Figures of one strategy; bytes and seconds.

    `workers` is their number, `samples_per_second` and `updates_per_second` are of all of them
    together. `server_bytes` are those in a server's memory.
    `tier` says which answered: the recurrence, or events alone where times depend on who comes
    first. `alone` are seconds a sample of one worker by itself. `sent` and `received`
    are bytes of a worker a step, `server_received` and `server_sent` those of each of `servers`.
    `busy` is the share of the time that each queue serves, the busiest first; `limits` what holds
    the strategy back, in words. `dropped` is the share of gradients that did not count. `roles` are
    those of devices, as a prediction's peaks per rank list them. `trains_otherwise` says that the
    same samples may train less or more than with the gradient of the whole batch. `layout` are the
    signatures of all operations, as plain data, where a model is laid out on a mesh.
    """

    name: str
    tier: Spoke
    workers: int
    samples_per_second: float
    alone: float
    sent: float
    received: float
    limits: str
    servers: int = 0
    server_received: float = 0.0
    server_sent: float = 0.0
    server_bytes: float = 0.0
    busy: Mapping[str, float] = field(default_factory=dict)
    dropped: float = 0.0
    updates_per_second: float = 0.0
    staleness: StalenessFigures | None = None
    roles: tuple[str, ...] = ("worker",)
    trains_otherwise: bool = False
    layout: Mapping[str, object] | None = None

    @property
    def efficiency(self) -> float:
        """Speed-up over one worker, by the number of workers."""
        return self.speed_up / self.workers

    @property
    def speed_up(self) -> float:
        """Samples a second over those of one worker by itself."""
        return self.samples_per_second * self.alone

    def to_json(self) -> dict[str, Any]:
        """The `strategy` block of a prediction's document."""
        return {
            "name": self.name,
            "tier": self.tier,
            "samples_per_s": self.samples_per_second,
            "updates_per_s": self.updates_per_second,
            "speed_up": self.speed_up,
            "efficiency": self.efficiency,
            "worker_sent_bytes": self.sent,
            "worker_received_bytes": self.received,
            "servers": self.servers,
            "server_received_bytes": self.server_received,
            "server_sent_bytes": self.server_sent,
            "server_memory_bytes": self.server_bytes,
            "busy_share": dict(self.busy),
            "dropped_share": self.dropped,
            "limited_by": self.limits,
            "device_roles": list(self.roles),
            "trains_otherwise": self.trains_otherwise,
            "staleness": self.staleness and self.staleness.to_json(),
            **({} if self.layout is None else {"layout": self.layout}),
        }
