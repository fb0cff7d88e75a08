"""Fit kernel constants to the published tables; write the residuals and a report of the errors.

`make fit-kernels` runs it. The constants in `devices.yaml` are its rounded results; the residuals
of `parsim/cluster/catalog/kernels/` are measured times over those of the catalog's constants, so
they are right whether or not somebody has changed a constant since. Nothing here runs when parsim
predicts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from parsim.cluster.benchmarks import Scales
from parsim.cluster.hardware import Device
from parsim.cluster.reader import load_catalog
from parsim.validation.kernel_fit import (
    ACCUMULATE,
    ATTENTION,
    GEMM,
    GROUPED,
    PRODUCTS,
    Constant,
    attention_constants,
    corrected_times,
    distinct_kernels,
    fit_constants,
    fit_scales,
    model_times,
    residual_points,
)
from parsim.validation.kernel_tables import Kernel, kernels_of, shipped_kernel_tables

Array = NDArray[np.float64]
Points = tuple[tuple[float, ...], ...]

DEVICES = ("a100-sxm-80gb", "h100-sxm-80gb", "a100-pcie-80gb", "b200-sxm")
KINDS = ("gemm", "attention_forward", "attention_backward", "grouped_gemm")
BEST_CASES = "mamf"
"""Tables of the best of many shapes say nothing about the others: no fit takes them."""
SPLITS = 8
CURVE, SEEDS = (5, 10, 20, 40, 80, 160), 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Errors of the constants alone and with residuals, on shapes that neither has seen."""

    model: Array
    corrected: Array


def published(device: str, kind: str) -> list[Kernel]:
    """Distinct kernels of one device and kind, as the shipped tables have them."""
    paths = [path for path in shipped_kernel_tables() if BEST_CASES not in path.stem]
    rows = [one for path in paths for one in kernels_of(path)]
    return distinct_kernels([one for one in rows if (one.device.id, one.kind) == (device, kind)])


def constants_of(kind: str, kernels: Sequence[Kernel]) -> tuple[Constant, ...]:
    """What is fitted to a kind; the factor of accumulation only where rows accumulate."""
    if kind == "gemm":
        wide = any(one.shape["accumulate"] for one in kernels)
        return (*GEMM, ACCUMULATE) if wide else GEMM
    return GROUPED if kind == "grouped_gemm" else attention_constants(kind.split("_")[1])


def fitted(kind: str, kernels: Sequence[Kernel], start: Device | None = None) -> Device:
    """The kernels' device with its constants of a kind fitted to them."""
    device = start or kernels[0].device
    fine = kind.startswith("attention")
    return fit_constants(device, kernels, constants_of(kind, kernels), fine=fine)


def scales_of(kind: str, points: Points) -> Scales:
    """How far a table of a kind reaches."""
    return fit_scales(points, PRODUCTS if kind == "gemm" else ATTENTION)


def families(kernels: Sequence[Kernel]) -> list[list[int]]:
    """Rows that must stay together: a layer's three products are one set of m, n and k."""
    found: dict[tuple[float, ...], list[int]] = {}
    for i, one in enumerate(kernels):
        names = ("m", "n", "k") if one.kind == "gemm" else ("experts", "tokens", "n", "k", "flops")
        sizes = [float(one.shape[name]) for name in names if name in one.shape]
        found.setdefault(tuple(sorted(sizes)), []).append(i)
    return list(found.values())


def halves(kernels: Sequence[Kernel], seed: int) -> tuple[list[Kernel], list[Kernel]]:
    """A random half of the families to fit, and the others."""
    groups = families(kernels)
    order = np.random.default_rng(seed).permutation(len(groups))
    cut = len(groups) // 2
    parts = order[:cut], order[cut:]
    return tuple([kernels[i] for j in part for i in sorted(groups[j])] for part in parts)  # type: ignore[return-value]


def unseen(kind: str, seen: Sequence[Kernel], others: Sequence[Kernel]) -> Split:
    """Errors on the others of constants and residuals that were fitted to the seen ones."""
    device = fitted(kind, seen)
    measured = np.array([one.seconds for one in others])
    modelled = model_times(device, others)
    if kind == "grouped_gemm":
        return Split(model=modelled / measured - 1.0, corrected=modelled / measured - 1.0)
    points = residual_points(device, seen)
    times = corrected_times(device, others, points, scales_of(kind, points))
    return Split(model=modelled / measured - 1.0, corrected=times / measured - 1.0)


def split_errors(kind: str, kernels: Sequence[Kernel]) -> list[Split]:
    """Random halves for GEMMs; each family left out once for the few shapes of the others."""
    if kind == "gemm":
        return [unseen(kind, *halves(kernels, seed)) for seed in range(SPLITS)]
    left = []
    for group in families(kernels):
        seen = [one for i, one in enumerate(kernels) if i not in group]
        left.append(unseen(kind, seen, [kernels[i] for i in group]))
    return [Split(model=np.concatenate([one.model for one in left]),
                  corrected=np.concatenate([one.corrected for one in left]))]  # fmt: skip


def told(errors: Sequence[Array]) -> str:
    """Median / p90 / max of |error| in percent, mean over the splits."""
    size = [np.abs(one) for one in errors]
    parts = [np.mean([np.quantile(one, q) for one in size]) for q in (0.5, 0.9, 1.0)]
    return " / ".join(f"{100.0 * part:.1f}" for part in parts)


def report(progress: Callable[[str], None]) -> str:
    """Markdown: the constants, errors in sample and on unseen shapes, the learning curve."""
    tables = {(d, kind): published(d, kind) for d in DEVICES for kind in KINDS}
    tables = {key: rows for key, rows in tables.items() if rows}
    lines = [
        "# Kernel times: constants and errors",
        "",
        "Written by `make fit-kernels` (`python -m parsim.validation.fit_kernels`); do not edit.",
        " ".join((__doc__ or "").split("\n\n")[1].split(". ", 1)[1].split()),
        "",
        "Errors are |predicted / measured - 1| in percent, median / p90 / max, over distinct shapes",
        "(median over repeats). Unseen: GEMMs in random halves, mean of "
        f"{SPLITS} splits, the products of one layer on one side; the others with each shape left "
        "out once.",
        "",
        "| device | kind | shapes | catalog | fitted again | unseen, model | unseen, with residuals |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    again: dict[tuple[str, str], Device] = {}
    for (name, kind), rows in tables.items():
        progress(f"{name} {kind}")
        again[name, kind] = fitted(kind, rows)
        lines.append(_error_line(name, kind, rows, again[name, kind]))
    lines += ["", "## Constants fitted again", ""]
    for kind in KINDS:
        lines += _constant_table(kind, {d: dev for (d, k), dev in again.items() if k == kind})
    lines += ["## GEMM: random shapes measured, unseen ones predicted", "",
              f"Mean of {SEEDS} seeds, with residuals; median / p90 / max.", ""]  # fmt: skip
    lines += _curve({d: rows for (d, kind), rows in tables.items() if kind == "gemm"}, progress)
    return "\n".join(lines) + "\n"


def _error_line(name: str, kind: str, rows: Sequence[Kernel], again: Device) -> str:
    measured = np.array([one.seconds for one in rows])
    here = model_times(load_catalog().device(name), rows) / measured - 1.0
    there = model_times(again, rows) / measured - 1.0
    splits = split_errors(kind, rows)
    cells = [[here], [there], [one.model for one in splits], [one.corrected for one in splits]]
    return f"| {name} | {kind} | {len(rows)} | {' | '.join(told(cell) for cell in cells)} |"


def _constant_table(kind: str, devices: Mapping[str, Device]) -> list[str]:
    names = [one.name for one in (*GEMM, ACCUMULATE)] if kind == "gemm" else [
        one.name for one in constants_of(kind, [])]  # fmt: skip
    lines = [f"| {kind} | {' | '.join(devices)} |", "|---|" + "--:|" * len(devices)]
    for name in names:
        cells = [f"{getattr(device, name):.4g}" for device in devices.values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return [*lines, ""]


def _curve(tables: Mapping[str, Sequence[Kernel]], progress: Callable[[str], None]) -> list[str]:
    lines = [f"| shapes measured | {' | '.join(tables)} |", "|--:|" + "--:|" * len(tables)]
    for count in CURVE:
        progress(f"learning curve {count}")
        cells = [_curve_cell(rows, count) for rows in tables.values()]
        lines.append(f"| {count} | {' | '.join(cells)} |")
    return lines


def _curve_cell(rows: Sequence[Kernel], count: int) -> str:
    if 2 * count > len(rows):
        return "-"
    errors = []
    for seed in range(SEEDS):
        order = np.random.default_rng(seed).permutation(len(rows))
        seen, others = ([rows[i] for i in part] for part in (order[:count], order[count:]))
        errors.append(unseen("gemm", seen, others).corrected)
    return told(errors)


def write_residuals(folder: Path) -> None:
    """The catalog's residual tables and their scales, from the catalog's constants."""
    scales = ["# What make fit-kernels found: natural logarithms, lengths in octaves.",
              "device,kind,spread,jagged,noise,length1,length2,length3,length4"]  # fmt: skip
    for name in DEVICES:
        lines = list(_table_lines(name, scales))
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "scales.csv").write_text("\n".join(scales) + "\n", encoding="utf-8")


def _table_lines(name: str, scales: list[str]) -> Iterator[str]:
    device = load_catalog().device(name)
    tables = sorted({path.stem for path in shipped_kernel_tables() if BEST_CASES not in path.stem})
    yield f"# Measured over modelled time, written by make fit-kernels from {', '.join(tables)}"
    yield "# gemm: m x batch, n, k, layout (1 tn, 2 nn, 4 nt, 8 into fp32), ratio"
    yield "# attention: executed FLOPs, sequence length, head size, ratio"
    yield "kind,coordinate1,coordinate2,coordinate3,coordinate4,ratio"
    for kind in KINDS[:3]:
        rows = published(name, kind)
        if not rows:
            continue
        points = residual_points(device, rows)
        found = scales_of(kind, points)
        numbers = (found.spread, found.jagged, found.noise, *found.lengths)
        cells = [f"{x:.4g}" for x in numbers] + [""] * (7 - len(numbers))
        scales.append(",".join([name, kind, *cells]))
        for *where, ratio in points:
            cells = [f"{x:.10g}" for x in where] + [""] * (4 - len(where))
            yield ",".join([kind, *cells, f"{ratio:.4f}"])


def main(target: Path, folder: Path) -> None:
    """Write the report and the residual tables."""
    write_residuals(folder)
    said = report(lambda text: print(text, file=sys.stderr))
    target.write_text(said, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
