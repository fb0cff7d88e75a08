"""Predict measured kernels, and say how wrong and how sure the predictions are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from parsim.cost.kernel.flash import flash_attention_time
from parsim.cost.kernel.kernels import (
    PUBLISHED,
    gemm_time,
    grouped_gemm_time,
    known_points,
    layout_code,
)
from parsim.cost.kernel.residuals import residual_spread, support
from parsim.sim.confidence.basis import Z80
from parsim.validation.kernel.measured_kernel import Kernel, parse_kernel, read_kernel_table
from parsim.validation.tables import Progress, RowSkipped, predict_tables

SCHEMA_VERSION = 1
SAME, NEAR = 1.0 - 1e-6, 0.2
"""Support of a measured shape itself, and of a shape that measured ones correct."""
SOURCES = ("measured", "corrected", "model")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRow:
    """One row; seconds, the error is (predicted - measured) / measured."""

    table: str
    row_id: str
    reason: str = ""
    device: str = ""
    kind: str = ""
    predicted: float | None = None
    measured: float | None = None
    interval: tuple[float, float] | None = None
    source: str = ""

    @property
    def error(self) -> float | None:
        """Signed error; None where no prediction was made."""
        if self.predicted is None or self.measured is None:
            return None
        return self.predicted / self.measured - 1.0

    @property
    def inside(self) -> bool:
        """Whether the measured time lies in the 80 % interval."""
        if self.interval is None or self.measured is None:
            return False
        return self.interval[0] <= self.measured <= self.interval[1]

    def to_json(self) -> dict[str, Any]:
        """One entry of `validate --kernels --json`."""
        return {
            "table": self.table,
            "row_id": self.row_id,
            "status": "skipped" if self.reason else "ok",
            "reason": self.reason,
            "device": self.device,
            "kind": self.kind,
            "predicted_time_s": self.predicted,
            "measured_time_s": self.measured,
            "error": self.error,
            "interval_s": list(self.interval) if self.interval else None,
            "source": self.source,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSummary:
    """Errors (fractions) of one table, device and kind.

    Of |predicted / measured - 1| of `n` kernels there are median, 90th percentile and maximum;
    `bias` is the mean that keeps the sign. `sources` counts kernels by what their time comes from,
    in the order of SOURCES; `inside_interval` is the share of them inside their 80 % interval.
    """

    table: str
    device: str
    kind: str
    n: int
    median_abs_error: float
    p90_abs_error: float
    max_abs_error: float
    bias: float
    sources: tuple[int, int, int]
    inside_interval: float

    def to_json(self) -> dict[str, Any]:
        """Field names are the JSON contract."""
        named = {f"n_{name}": count for name, count in zip(SOURCES, self.sources, strict=True)}
        plain = {name: getattr(self, name) for name in self.__slots__ if name != "sources"}
        return plain | named


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelValidation:
    """All rows of all tables, in order."""

    rows: tuple[KernelRow, ...]

    @property
    def summaries(self) -> tuple[KernelSummary, ...]:
        """One per table, device and kind that was predicted."""
        done = [row for row in self.rows if not row.reason]
        keys = dict.fromkeys((row.table, row.device, row.kind) for row in done)
        return tuple(
            _summary(key, [row for row in done if (row.table, row.device, row.kind) == key])
            for key in keys
        )

    @property
    def skipped(self) -> dict[tuple[str, str], int]:
        """How many rows were skipped, by table and reason."""
        return dict(Counter((row.table, row.reason) for row in self.rows if row.reason))

    def to_json(self) -> dict[str, Any]:
        """The document that `parsim validate --kernels --json` prints."""
        return {
            "schema_version": SCHEMA_VERSION,
            "rows": [row.to_json() for row in self.rows],
            "summary": [summary.to_json() for summary in self.summaries],
            "skipped": [
                {"table": table, "reason": reason, "n": count}
                for (table, reason), count in self.skipped.items()
            ],
        }


def validate_kernels(
    paths: Sequence[Path], *, progress: Progress | None = None
) -> KernelValidation:
    """Predict every row of the tables, each kernel alone as a benchmark runs it.

    Raises:
        TableError: a table cannot be read at all.
    """
    return KernelValidation(rows=predict_tables(paths, read_kernel_table, predict_kernel, progress))


def predict_kernel(table: str, row: dict[str, str]) -> KernelRow:
    """Predict one row."""
    try:
        kernel = parse_kernel(row)
    except RowSkipped as reason:
        row_id = row.get("row_id") or "(no row_id)"
        return KernelRow(table=table, row_id=row_id, reason=str(reason))
    seconds = predicted_time(kernel)
    spread, source = certainty(kernel)
    wide = float(np.exp(Z80 * spread))
    return KernelRow(
        table=table,
        row_id=kernel.row_id,
        device=kernel.device.id,
        kind=kernel.kind,
        predicted=seconds,
        measured=kernel.seconds,
        interval=(seconds / wide, seconds * wide),
        source=source,
    )


def predicted_time(kernel: Kernel) -> float:
    """Seconds of a kernel alone."""
    shape: dict[str, Any] = dict(kernel.shape)
    if kernel.kind == "gemm":
        return float(gemm_time(kernel.device, kernel.precision, isolated=True, **shape))
    if kernel.kind == "grouped_gemm":
        return float(grouped_gemm_time(kernel.device, kernel.precision, **shape))
    return float(flash_attention_time(kernel.device, kernel.precision, isolated=True, **shape))


def certainty(kernel: Kernel) -> tuple[float, str]:
    """Standard deviation of the log error, and where the prediction comes from."""
    where = coordinates(kernel)
    points, scales = known_points(kernel.device, kernel.kind, kernel.precision in PUBLISHED)
    spread = float(residual_spread(points, kernel.kind, *where, scales=scales))
    near = float(support(points, kernel.kind, *where, scales=scales))
    return spread, SOURCES[0 if near >= SAME else 1 if near >= NEAR else 2]


def coordinates(kernel: Kernel) -> tuple[float, ...]:
    """Where a kernel stands among the measured points of its kind."""
    shape: dict[str, Any] = dict(kernel.shape)
    if kernel.kind == "gemm":
        wide = shape["accumulate"] and shape["out_value"] == 4 and shape["value"] < 4
        code = layout_code(shape["layout"], wide)
        return shape["m"] * shape["batch"], shape["n"], shape["k"], code
    grouped = kernel.kind == "grouped_gemm"
    names = ("experts", "tokens", "n", "k") if grouped else ("flops", "seq_len", "head_dim")
    return tuple(float(shape[name]) for name in names)


def _summary(key: tuple[str, str, str], rows: Sequence[KernelRow]) -> KernelSummary:
    errors = [row.error for row in rows if row.error is not None]
    sizes = sorted(abs(error) for error in errors)
    counts = Counter(row.source for row in rows)
    return KernelSummary(
        table=key[0],
        device=key[1],
        kind=key[2],
        n=len(sizes),
        median_abs_error=median(sizes),
        p90_abs_error=sizes[-(-9 * len(sizes) // 10) - 1],  # nearest rank, as for steps
        max_abs_error=sizes[-1],
        bias=sum(errors) / len(errors),
        sources=(counts["measured"], counts["corrected"], counts["model"]),
        inside_interval=sum(row.inside for row in rows) / len(rows),
    )
