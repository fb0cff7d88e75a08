"""Fit kernel constants to the published tables; write the residuals and a report of the errors.

`make fit-kernels` runs it. The constants in `devices.yaml` are its rounded results. The residuals
of `parsim/cluster/catalog/kernels/` are measured times over those of the catalog's constants:
whoever changes a `gemm_*` or `attention_*` constant of one of these devices (other than
`*_sustained`) runs it again. Nothing here runs when parsim predicts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from parsim.cluster.hardware import Device
from parsim.cluster.reader import load_catalog
from parsim.cost.kernel import kernels as kernel_costs
from parsim.fitting.kernels.fit import ACCUMULATE, GEMM, model_times, residual_points
from parsim.fitting.kernels.unseen import (
    SPLITS,
    constants_of,
    fitted,
    fitted_tables,
    published,
    scales_of,
    split_errors,
    told,
    unseen,
)
from parsim.report.markdown import markdown_table
from parsim.validation.kernel.measured_kernel import Kernel
from parsim.validation.tables import shipped_tables
from parsim.validation.validate import validate

Progress = Callable[[str], None]
Tables = Mapping[tuple[str, str], Sequence[Kernel]]

DEVICES = ("a100-sxm-80gb", "h100-sxm-80gb", "a100-pcie-80gb", "b200-sxm")
KINDS = ("gemm", "attention_forward", "attention_backward", "grouped_gemm")
CURVE, SEEDS = (5, 10, 20, 40, 80, 160), 3

HEAD = f"""# Kernel times: constants and errors

Written by `make fit-kernels` (`python -m parsim.fitting.reports.kernel_fit`); do not edit.
Errors are |predicted / measured - 1| in percent, median / p90 / max, over distinct shapes (median
over repeats). Unseen: GEMMs in random halves of the shapes, mean of {SPLITS} splits, a layer's
three products on one side; the other kinds with each shape left out once; constants and residuals
come from the other shapes. The form of the model was settled while looking at all rows. "in 80 %":
unseen shapes inside the predicted 80 % interval. Attention's residuals are a few points each.

"""
COLUMNS = (
    "device | kind | shapes | catalog's constants | fitted again | unseen, model "
    "| unseen, with residuals | in 80 %"
)


def report(progress: Progress) -> str:
    """Markdown: constants, errors in sample and on unseen shapes, learning curve, steps."""
    tables = {(d, kind): published(d, kind) for d in DEVICES for kind in KINDS}
    tables = {key: rows for key, rows in tables.items() if rows}
    rows_of_errors, again = [], {}
    for (name, kind), rows in tables.items():
        progress(f"{name} {kind}")
        again[name, kind] = fitted(kind, rows)
        rows_of_errors.append(_error_cells(name, kind, rows, again[name, kind]))
    lines = [*markdown_table(COLUMNS, rows_of_errors, words=(0, 1))]
    lines += ["", "## Constants fitted again", ""]
    for kind in KINDS:
        lines += _constant_table(kind, {d: dev for (d, k), dev in again.items() if k == kind})
    lines += ["## GEMM: random shapes measured, unseen ones predicted", ""]
    lines += [f"With residuals, mean of {SEEDS} seeds; median / p90 / max.", ""]
    lines += [*_curve(tables, progress), ""]
    lines += ["## Training steps with and without the residuals of kernels", ""]
    lines += _steps(progress)
    return HEAD + "\n".join(lines) + "\n"


def _error_cells(name: str, kind: str, rows: Sequence[Kernel], again: Device) -> list[object]:
    measured = np.array([row.seconds for row in rows])
    here = model_times(load_catalog().device(name), rows) / measured - 1.0
    there = model_times(again, rows) / measured - 1.0
    splits = split_errors(kind, rows)
    cells = [
        [here],
        [there],
        [split.model for split in splits],
        [split.corrected for split in splits],
    ]
    inside = 100.0 * float(np.mean([split.inside.mean() for split in splits]))
    return [name, kind, len(rows), *map(told, cells), f"{inside:.0f}"]


def _constant_table(kind: str, devices: Mapping[str, Device]) -> list[str]:
    constants = (*GEMM, ACCUMULATE) if kind == "gemm" else constants_of(kind, [])
    cells = (
        (c.name, *(f"{getattr(device, c.name):.4g}" for device in devices.values()))
        for c in constants
    )
    return [*markdown_table((kind, *devices), cells), ""]


def _curve(tables: Tables, progress: Progress) -> list[str]:
    gemms = {name: rows for (name, kind), rows in tables.items() if kind == "gemm"}
    cells = []
    for count in CURVE:
        progress(f"learning curve, {count} shapes")
        cells.append((count, *(_curve_cell(rows, count) for rows in gemms.values())))
    return list(markdown_table(("shapes measured", *gemms), cells, words=()))


def _curve_cell(rows: Sequence[Kernel], count: int) -> str:
    if 2 * count > len(rows):
        return "-"
    errors = []
    for seed in range(SEEDS):
        order = np.random.default_rng(seed).permutation(len(rows))
        seen, others = ([rows[i] for i in part] for part in (order[:count], order[count:]))
        errors.append(unseen("gemm", seen, others).corrected)
    return told(errors)


def _steps(progress: Progress) -> list[str]:
    """Mean |error| / bias of every table of runs, both ways."""
    kept = kernel_costs.BENCHMARKS_IN_STEPS
    validations = []
    for switch in (False, True):
        progress(f"steps, residuals of kernels {'on' if switch else 'off'}")
        kernel_costs.BENCHMARKS_IN_STEPS = switch
        validations.append(validate(shipped_tables()))
    kernel_costs.BENCHMARKS_IN_STEPS = kept
    rows = []
    for table in validations[0].tables:
        cells = []
        for summary in (both.summary(table) for both in validations):
            if summary.mean_abs_error is not None and summary.bias is not None:
                cells.append(f"{100 * summary.mean_abs_error:.1f} / {100 * summary.bias:+.1f}")
        if cells:
            rows.append((table, *cells))
    head = ["Mean of |error| / bias, percent.", ""]
    return [*head, *markdown_table("table | without | with", rows)]


def write_residuals(folder: Path) -> None:
    """The catalog's residual tables and their scales, from the catalog's constants."""
    scales = [
        "# What make fit-kernels found: natural logarithms, lengths in octaves.",
        "device,kind,spread,jagged,noise,length1,length2,length3,length4",
    ]
    for name in DEVICES:
        lines = list(_table_lines(name, scales))
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "scales.csv").write_text("\n".join(scales) + "\n", encoding="utf-8")


def _table_lines(name: str, scales: list[str]) -> Iterator[str]:
    device = load_catalog().device(name)
    tables = [path.stem for path in fitted_tables()]
    yield f"# Measured over modelled time, written by make fit-kernels from {', '.join(tables)}"
    yield "# gemm: m x batch, n, k, layout (1 tn, 2 nn, 4 nt, 8 into fp32), ratio"
    yield "# attention: executed FLOPs, sequence length, head size, ratio"
    yield "kind,coordinate1,coordinate2,coordinate3,coordinate4,ratio"
    for kind in KINDS[:3]:
        rows = published(name, kind)
        if not rows:
            continue
        points = residual_points(device, rows)
        fitted = scales_of(kind, points)
        numbers = (fitted.spread, fitted.jagged, fitted.noise, *fitted.lengths)
        cells = [f"{x:.4g}" for x in numbers] + [""] * (7 - len(numbers))
        scales.append(",".join([name, kind, *cells]))
        for *where, ratio in points:
            cells = [f"{x:.10g}" for x in where] + [""] * (4 - len(where))
            yield ",".join([kind, *cells, f"{ratio:.4f}"])


def main(target: Path, folder: Path) -> None:
    """Write the residual tables and the report."""
    write_residuals(folder)
    target.write_text(report(_note), encoding="utf-8")


def _note(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
