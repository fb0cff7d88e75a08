"""Predicted collectives by kind and size, as nccl-tests would measure them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from parsim.cluster.hardware import System
from parsim.cost.collective.choice import CollectiveChoice, choose
from parsim.cost.collective.collectives import p2p_time
from parsim.cost.collective.group_bandwidth import GLOO
from parsim.cost.collective.kinds import Algorithm, CollectiveKind, wire_share
from parsim.cost.collective.measured_curve import collective_spread
from parsim.cost.collective.mesh_messages import pair_share
from parsim.cost.collective.nccl import Protocol
from parsim.errors import PlanError
from parsim.results import RowsResult
from parsim.sim.benchmark.group_layout import GroupLayout
from parsim.units import MIB

SCHEMA_VERSION = 1
Collective = CollectiveKind | Literal["send_recv"]
COLLECTIVES: tuple[Collective, ...] = (
    "all_reduce",
    "broadcast",
    "reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "send_recv",
)
Timings = Mapping[tuple[str, int], tuple[float, float]]
"""Kind and size -> median of the measured seconds and its median deviation."""
Z80 = 1.2816
"""Standard normal deviate of an 80 % interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One collective of one size: seconds, with their 80 % interval, and what does it.

    `size` is counted as nccl-tests does: the whole array for all-gather and reduce-scatter, what
    one rank sends in all for all-to-all. `bus_share` is busbw over algbw. `measured` is a median
    in seconds, `measured_mad` the median deviation from it.
    """

    collective: Collective
    size: int
    algorithm: Algorithm
    protocol: Protocol
    seconds: float
    spread: float
    bus_share: float
    measured: float | None = None
    measured_mad: float | None = None

    @property
    def interval(self) -> tuple[float, float]:
        """The 80 % interval of the seconds."""
        width = math.exp(Z80 * self.spread)
        return self.seconds / width, self.seconds * width

    @property
    def algbw(self) -> float:
        """Bytes over seconds."""
        return self.size / self.seconds

    @property
    def busbw(self) -> float:
        """What a link carries where a ring does the work, bytes/s."""
        return self.algbw * self.bus_share

    @property
    def error(self) -> float | None:
        """(predicted - measured) / measured."""
        return None if self.measured is None else self.seconds / self.measured - 1.0

    def to_json(self) -> dict[str, Any]:
        """One entry of `rows`."""
        return {
            "collective": self.collective,
            "bytes": self.size,
            "algorithm": self.algorithm,
            "protocol": self.protocol,
            "time_s": self.seconds,
            "algbw_gb_per_s": self.algbw / 1e9,
            "busbw_gb_per_s": self.busbw / 1e9,
            "interval_s": list(self.interval),
            "measured_time_s": self.measured,
        }


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Sweep(RowsResult):
    """Rows by kind, then size, of one group with nobody beside it."""

    layout: GroupLayout
    rows: tuple[Row, ...]

    @property
    def headline(self) -> str:
        """System, ranks and where they stand."""
        ranks, nodes = self.layout.num_ranks, self.layout.num_nodes
        noun = "node" if nodes == 1 else "nodes"
        return f"{self.layout.system.id}: {ranks} ranks on {nodes} {noun}"

    @property
    def kinds(self) -> tuple[Collective, ...]:
        """Kinds in the order of the rows."""
        return tuple(dict.fromkeys(row.collective for row in self.rows))

    def of(self, kind: Collective) -> tuple[Row, ...]:
        """Rows of one kind."""
        return tuple(row for row in self.rows if row.collective == kind)

    def beside(self, measured: Timings) -> Sweep:
        """This sweep with measured seconds in its rows."""
        rows = []
        for row in self.rows:
            median, mad = measured.get((row.collective, row.size), (None, None))
            rows.append(replace(row, measured=median, measured_mad=mad))
        return replace(self, rows=tuple(rows))

    def to_json(self) -> dict[str, Any]:
        """The document of `parsim collectives --json`."""
        return {
            "schema_version": SCHEMA_VERSION,
            "system": self.layout.system.id,
            "n_ranks": self.layout.num_ranks,
            "rows": self.records(),
        }


def sweep(
    layout: GroupLayout,
    kinds: Sequence[Collective],
    sizes: Sequence[int],
    *,
    algorithm: Algorithm | None = None,
    protocol: Protocol | None = None,
) -> Sweep:
    """Predict each kind at each size; a forced algorithm or protocol must be able to do each.

    Raises:
        PlanError: the algorithm or protocol cannot serve a kind on this group.
    """
    rows = tuple(_row(layout, kind, size, algorithm, protocol) for kind in kinds for size in sizes)
    return Sweep(layout=layout, rows=rows)


def able_kinds(
    layout: GroupLayout, algorithm: Algorithm | None, protocol: Protocol | None
) -> tuple[Collective, ...]:
    """Kinds that a forced algorithm and protocol can do on this group.

    Raises:
        PlanError: they can do none; says what an all-reduce could take.
    """
    able = []
    for kind in COLLECTIVES:
        try:
            benchmark_choice(layout, kind, MIB, algorithm, protocol)
        except PlanError:
            continue
        able.append(kind)
    if not able:
        benchmark_choice(layout, "all_reduce", MIB, algorithm, protocol)
    return tuple(able)


def benchmark_choice(
    layout: GroupLayout,
    kind: Collective,
    size: float,
    algorithm: Algorithm | None = None,
    protocol: Protocol | None = None,
) -> CollectiveChoice:
    """Algorithm, protocol and seconds of one collective in a loop of collectives.

    Raises:
        PlanError: the algorithm or protocol cannot serve the kind on this group.
    """
    system = benchmarked(layout.system)
    if kind != "send_recv":
        return choose(system, kind, size, layout.alone, algorithm=algorithm, protocol=protocol)
    if algorithm not in (None, "p2p") or protocol not in (None, "Simple"):
        raise PlanError(
            f"algorithm {algorithm or 'p2p'} with protocol {protocol or 'Simple'} cannot do "
            f"send_recv on {system.id}; allowed: p2p with Simple"
        )
    first, second, *others = layout.groups[0]
    crosses, share = layout.num_nodes > 1, pair_share(system, first, second, others)
    seconds = float(p2p_time(system, size, crosses=crosses, sharing=1.0, share=share))
    return CollectiveChoice(
        library=system.library, algorithm="p2p", protocol="Simple", seconds=seconds
    )


def benchmarked(system: System) -> System:
    """The system without what a training step adds to a call beyond a loop of collectives.

    gloo's calls, and those that a calibration measured, have nothing but that overhead: it stays.
    """
    if system.library == GLOO or system.calibrated:
        return system
    return replace(system, call_overhead=0.0, call_overhead_per_rank=0.0)


def _row(
    layout: GroupLayout,
    kind: Collective,
    size: int,
    algorithm: Algorithm | None,
    protocol: Protocol | None,
) -> Row:
    choice = benchmark_choice(layout, kind, float(size), algorithm, protocol)
    spread = collective_spread(layout.system, kind, float(size), layout.alone)
    return Row(
        collective=kind,
        size=size,
        algorithm=choice.algorithm,
        protocol=choice.protocol,
        seconds=choice.seconds,
        spread=float(spread[0]),
        bus_share=bus_share(kind, layout.num_ranks),
    )


def bus_share(kind: Collective, ranks: int) -> float:
    """Busbw over algbw as nccl-tests counts it; 1 for send/recv."""
    if kind == "send_recv":
        return 1.0
    return float(wire_share(kind, np.array([float(ranks)]))[0])
