"""Bandwidths that somebody measured on a known system, beside those of its links and constants.

`data/network/anchors.csv` has one a row: busbw of a collective of whole groups, GB/s as nccl-tests
prints it. The prediction takes no measured curve of the system, only its catalog entry and the
constants of `parsim/cost/collective/kinds.py` and `parsim/cost/collective/tuner.py`.
`data/network/unpredicted.csv` has those whose links nobody stated, and `data/network/curves.csv`
whole curves in the schema of `data/collectives` that `make fit-collectives` does not see.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np

from parsim.cluster.hardware import System
from parsim.cluster.reader import load_catalog
from parsim.cost.collective.choice import choose
from parsim.cost.collective.group_bandwidth import one_group
from parsim.cost.collective.kinds import Algorithm, CollectiveKind, wire_share
from parsim.validation.collective.measured_collective import CALL_OF_TORCH

WITHIN = 0.1
"""The share by which an anchor may be missed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """One measured bus bandwidth and its prediction, bytes/s; `remark` says what else is known.

    `gave` names the constant that was taken from this very row, which proves nothing of it.
    """

    system: str
    ranks: int
    nodes: int
    collective: CollectiveKind
    algorithm: str
    size: float
    measured: float
    predicted: float
    source: str
    remark: str
    gave: str = ""

    @property
    def error(self) -> float:
        """(predicted - measured) / measured."""
        return self.predicted / self.measured - 1.0

    @property
    def within(self) -> bool:
        """Whether the prediction is near enough."""
        return abs(self.error) <= WITHIN


def anchors() -> tuple[Anchor, ...]:
    """All anchors, in the order of their file."""
    path = files("parsim.validation") / "data" / "network" / "anchors.csv"
    lines = path.read_text(encoding="utf-8").splitlines()
    return tuple(_anchor(row) for row in csv.DictReader(lines))


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpredicted:
    """A measured bus bandwidth, bytes/s, of links that its source does not state."""

    what: str
    size: float
    measured: float
    source: str
    reason: str


def unpredicted() -> tuple[Unpredicted, ...]:
    """Measured bandwidths without a prediction, and why."""
    path = files("parsim.validation") / "data" / "network" / "unpredicted.csv"
    return tuple(
        Unpredicted(
            what=row["what"],
            size=float(row["bytes"]),
            measured=float(row["busbw_gb_per_s"]) * 1e9,
            source=row["source"],
            reason=row["reason"],
        )
        for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines())
    )


def bridged(bridges: int, size: float) -> float:
    """Bus bandwidth that two H100 cards would reach over 1 to 3 NVLink bridges, bytes/s."""
    system = replace(load_catalog().system("h100-nvlink-pairs"), curves=())
    link = system.intra.bandwidth * bridges / 3.0
    system = replace(system, intra=replace(system.intra, bandwidth=link), call_overhead=0.0)
    return size / choose(system, "all_reduce", size, one_group(system, 2)).seconds


def kept_aside() -> Path:
    """Whole public curves outside `make fit-collectives`."""
    with as_file(files("parsim.validation") / "data" / "network" / "curves.csv") as path:
        return path


def _anchor(row: dict[str, str]) -> Anchor:
    """What a row of the table measured, beside what is predicted of it."""
    system, ranks = _system(row), int(row["ranks"])
    kind: CollectiveKind = row["collective"]  # type: ignore[assignment]
    where, size = one_group(system, ranks), float(row["bytes"])
    forced: Algorithm | None = row["algorithm"] or None  # type: ignore[assignment]
    choice = choose(system, kind, size, where, algorithm=forced)
    share = float(wire_share(kind, np.array([float(ranks)]))[0])
    return Anchor(
        system=system.id,
        ranks=ranks,
        nodes=int(where.nodes[0]),
        collective=kind,
        algorithm=row["algorithm"],
        size=size,
        measured=float(row["busbw_gb_per_s"]) * 1e9,
        predicted=share * size / choice.seconds,
        source=row["source"],
        remark=row["remark"],
        gave=row["gave"],
    )


def _system(row: dict[str, str]) -> System:
    """The catalog's system without curves, a call costing what the tool's does."""
    system = load_catalog().system(row["system"])
    call = CALL_OF_TORCH if row["tool"] == "torch" else 0.0
    system = replace(system, curves=(), call_overhead=call, call_overhead_per_rank=0.0)
    if row["link_gb_per_s"]:
        rate = float(row["link_gb_per_s"]) * 1e9
        system = replace(system, intra=replace(system.intra, bandwidth=rate))
    if row["nics_per_node"] and system.network is not None:
        count = int(row["nics_per_node"])
        system = replace(system, network=replace(system.network, nics_per_node=count))
    return system
