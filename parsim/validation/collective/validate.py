"""Predict measured collectives, with the system's curves and without, and summarise the errors."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np

from parsim.cluster.hardware import System
from parsim.cost.collective.choice import choose
from parsim.cost.collective.collectives import collective_time, p2p_time
from parsim.cost.collective.kinds import Algorithm, CollectiveKind
from parsim.cost.collective.measured_curve import collective_spread, measured, size_class
from parsim.cost.collective.mesh_messages import pair_share
from parsim.errors import PlanError
from parsim.sim.confidence.basis import Z80
from parsim.validation.collective.measured_collective import (
    MeasuredCollective,
    parse_collective,
    read_collectives,
)
from parsim.validation.coverage import Summary, summarise
from parsim.validation.tables import Progress, RowSkipped, predict_tables

SCHEMA_VERSION = 1
CLASSES = ("< 64 KiB", "64 KiB to 1 MiB", "1 to 64 MiB", "> 64 MiB")
LARGE = ">= 1 MiB"
ALL = "all"
FLAGGED = "flagged"
CALIBRATED = "calibrated"
UNCALIBRATED = "uncalibrated"
MODES = (CALIBRATED, UNCALIBRATED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """Seconds, and the standard deviation of the logarithm of their error."""

    seconds: float
    spread: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveRow:
    """One row; `calibrated` only where the system has a curve of this very group."""

    table: str
    row_id: str
    reason: str = ""
    flag: str = ""
    scope: str = ""
    size: float = 0.0
    measured: float = 0.0
    system: str = ""
    group: str = ""
    kind: str = ""
    notes: tuple[str, ...] = ()
    calibrated: Predicted | None = None
    uncalibrated: Predicted | None = None

    def error(self, mode: str) -> float | None:
        """(predicted - measured) / measured."""
        predicted = self.predicted(mode)
        return None if predicted is None else predicted.seconds / self.measured - 1.0

    def predicted(self, mode: str) -> Predicted | None:
        """What one mode predicts."""
        return self.calibrated if mode == CALIBRATED else self.uncalibrated

    def inside(self, mode: str) -> bool | None:
        """Whether the measured time lies in the 80 % interval."""
        predicted = self.predicted(mode)
        if predicted is None:
            return None
        return bool(abs(np.log(self.measured / predicted.seconds)) <= Z80 * predicted.spread)

    @property
    def size_class(self) -> str:
        """One of CLASSES."""
        return CLASSES[int(size_class(self.size))]

    def to_json(self) -> dict[str, Any]:
        """One entry of `validate --collectives --json`."""
        predicted = {mode: self.predicted(mode) for mode in MODES}
        return {
            "table": self.table,
            "row_id": self.row_id,
            "status": "skipped" if self.reason else "ok",
            "reason": self.reason,
            "flag": self.flag,
            "place": self.scope,
            "system": self.system,
            "collective": self.kind,
            "group": self.group,
            "message_bytes": self.size or None,
            "measured_s": self.measured or None,
            **{f"{mode}_s": timed and timed.seconds for mode, timed in predicted.items()},
            **{f"{mode}_error": self.error(mode) for mode in MODES},
            **{f"{mode}_spread": timed and timed.spread for mode, timed in predicted.items()},
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveSummary:
    """Errors of one mode, scope and size class, and the share inside the 80 % interval."""

    mode: str
    scope: str
    size_class: str
    errors: Summary
    coverage: float | None

    def to_json(self) -> dict[str, Any]:
        """One entry of `summary`."""
        named = {"mode": self.mode, "place": self.scope, "size_class": self.size_class}
        return {**named, **self.errors.to_json(), "coverage_80": self.coverage}


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveValidation:
    """All rows of all tables, in order; `modes` says which of the two predictions are told."""

    rows: tuple[CollectiveRow, ...]
    modes: tuple[str, ...] = MODES

    @property
    def scopes(self) -> tuple[str, ...]:
        """Groups of the summary: scopes of sound rows, the flagged rows, all."""
        sound = dict.fromkeys(row.scope for row in self.rows if row.scope and not row.flag)
        flagged = (FLAGGED,) if any(row.flag for row in self.rows) else ()
        return (*sound, *flagged, ALL)

    def of(self, scope: str, size_class: str = ALL) -> tuple[CollectiveRow, ...]:
        """Rows of a scope and a size class; ALL takes every row."""

        def at_place(row: CollectiveRow) -> bool:
            if scope == FLAGGED:
                return bool(row.flag)
            return scope == ALL or (row.scope == scope and not row.flag)

        def of_size(row: CollectiveRow) -> bool:
            if size_class == LARGE:
                return row.size_class in CLASSES[2:]
            return size_class in (ALL, row.size_class)

        return tuple(row for row in self.rows if not row.reason and at_place(row) and of_size(row))

    def summary(self, mode: str, scope: str, size_class: str) -> CollectiveSummary:
        """Errors of one mode, scope and size class."""
        rows = [row for row in self.of(scope, size_class) if row.predicted(mode)]
        errors = [error for row in rows if (error := row.error(mode)) is not None]
        skipped = sum(bool(row.reason) for row in self.rows) if scope == ALL else 0
        inside = [bool(row.inside(mode)) for row in rows]
        return CollectiveSummary(
            mode=mode,
            scope=scope,
            size_class=size_class,
            errors=summarise(errors, skipped),
            coverage=sum(inside) / len(inside) if inside else None,
        )

    def summaries(self) -> list[CollectiveSummary]:
        """Every mode, scope and size class that has rows."""
        every = [
            self.summary(mode, scope, size)
            for mode in self.modes
            for scope in self.scopes
            for size in (*CLASSES, LARGE, ALL)
        ]
        return [summary for summary in every if summary.errors.n]

    def to_json(self) -> dict[str, Any]:
        """The document that `parsim validate --collectives --json` prints."""
        return {
            "schema_version": SCHEMA_VERSION,
            "rows": [row.to_json() for row in self.rows],
            "summary": [summary.to_json() for summary in self.summaries()],
        }


def validate_collectives(
    paths: Sequence[Path],
    *,
    modes: tuple[str, ...] = MODES,
    progress: Progress | None = None,
) -> CollectiveValidation:
    """Predict every row of the tables; `progress` is called with (rows done, rows in all).

    Raises:
        TableError: a table cannot be read at all.
    """
    rows = predict_tables(paths, read_collectives, predict_collective, progress)
    return CollectiveValidation(rows=rows, modes=modes)


def predict_collective(table: str, row: dict[str, str]) -> CollectiveRow:
    """Predict one row both ways."""
    row_id = row.get("row_id") or "(no row_id)"
    try:
        timed = parse_collective(row)
    except RowSkipped as reason:
        return CollectiveRow(table=table, row_id=row_id, reason=str(reason))
    bare = replace(timed.system, call_overhead=timed.overhead, call_overhead_per_rank=0.0)
    nodes, ranks = int(timed.where.nodes[0]), int(timed.where.size[0])
    return CollectiveRow(
        table=table,
        row_id=row_id,
        flag=timed.flag,
        scope=timed.scope if timed.kind != "send_recv" else f"send/recv, {timed.scope}",
        size=timed.size,
        measured=timed.seconds,
        system=timed.system.id,
        group=f"{nodes} x {ranks // nodes}",
        kind=timed.kind,
        notes=timed.notes,
        calibrated=_predict(bare, timed) if _has_curve(bare, timed) else None,
        uncalibrated=_predict(replace(bare, curves=()), timed),
    )


def _has_curve(system: System, timed: MeasuredCollective) -> bool:
    """Whether the system's collectives of this kind were measured on such a group."""
    if timed.kind not in get_args(CollectiveKind):
        return False
    return bool(measured(system, cast(CollectiveKind, timed.kind), timed.where)[0])


def _predict(system: System, timed: MeasuredCollective) -> Predicted:
    """Seconds of a row on its system, with the algorithm that it forced."""
    if timed.kind == "send_recv":
        crosses, share = bool(timed.where.nodes[0] > 1), pair_share(system, 0, 1)
        seconds = float(p2p_time(system, timed.size, crosses=crosses, sharing=1.0, share=share))
        spread = collective_spread(system, "all_gather", timed.size, timed.where)
        return Predicted(seconds=seconds, spread=float(spread[0]))
    kind = cast(CollectiveKind, timed.kind)
    seconds = float(collective_time(system, kind, timed.size, timed.where)[0])
    if timed.algorithm in get_args(Algorithm):
        forced = cast(Algorithm, timed.algorithm)
        with suppress(PlanError):  # what NCCL took by itself where parsim would not force it
            seconds = choose(system, kind, timed.size, timed.where, algorithm=forced).seconds
    spread = collective_spread(system, kind, timed.size, timed.where)
    return Predicted(seconds=seconds, spread=float(spread[0]))
