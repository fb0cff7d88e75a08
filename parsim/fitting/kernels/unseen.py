"""Errors of kernel constants and residuals on shapes that neither has seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from parsim.arrays import Array, Flags
from parsim.cluster.hardware import Device
from parsim.cluster.measured.published import Scales
from parsim.cost.kernel.residuals import residual_spread
from parsim.fitting.kernels.fit import (
    ACCUMULATE,
    ATTENTION,
    GEMM,
    GROUPED,
    PRODUCTS,
    KernelConstant,
    attention_constants,
    corrected_times,
    distinct_kernels,
    fit_constants,
    fit_scales,
    model_times,
    residual_points,
)
from parsim.sim.confidence.basis import Z80
from parsim.validation.kernel.measured_kernel import Kernel, parse_kernel, read_kernel_table
from parsim.validation.kernel.validate import coordinates
from parsim.validation.tables import RowSkipped, shipped_tables

Points = tuple[tuple[float, ...], ...]

NOT_FITTED = ("mamf", "xla")
"""Tables that no fit takes: of the best of many shapes, which say nothing about the others, and
one that judges, which came when the constants were there."""
SPLITS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Signed errors of the constants alone and with residuals, and who is in the 80 % interval."""

    model: Array
    corrected: Array
    inside: Flags


def published(device: str, kind: str) -> list[Kernel]:
    """Distinct kernels of one device and kind, as the shipped tables have them."""
    rows = [kernel for path in fitted_tables() for kernel in _kernels(path)]
    return distinct_kernels(
        [kernel for kernel in rows if (kernel.device.id, kernel.kind) == (device, kind)]
    )


def fitted_tables() -> list[Path]:
    """The shipped tables of kernels that constants are fitted to."""
    tables = shipped_tables("kernels")
    return [path for path in tables if not any(name in path.stem for name in NOT_FITTED)]


def _kernels(path: Path) -> Iterator[Kernel]:
    """The rows of a table that can be priced."""
    for row in read_kernel_table(path):
        try:
            yield parse_kernel(row)
        except RowSkipped:
            continue


def constants_of(kind: str, kernels: Sequence[Kernel]) -> tuple[KernelConstant, ...]:
    """What is fitted to a kind; the factor of accumulation only where rows accumulate."""
    if kind == "gemm":
        wide = any(kernel.shape["accumulate"] for kernel in kernels)
        return (*GEMM, ACCUMULATE) if wide else GEMM
    return GROUPED if kind == "grouped_gemm" else attention_constants(kind.split("_")[1])


def fitted(kind: str, kernels: Sequence[Kernel]) -> Device:
    """The kernels' device with its constants of a kind fitted to them."""
    fine = kind.startswith("attention")
    return fit_constants(kernels[0].device, kernels, constants_of(kind, kernels), fine=fine)


def scales_of(kind: str, points: Points) -> Scales:
    """How far a table of a kind reaches."""
    return fit_scales(points, PRODUCTS if kind == "gemm" else ATTENTION)


def families(kernels: Sequence[Kernel]) -> list[list[int]]:
    """Rows that must stay together: a layer's three products are one set of m, n and k."""
    groups: dict[tuple[float, ...], list[int]] = {}
    names = ("m", "n", "k", "experts", "tokens", "flops")
    for i, kernel in enumerate(kernels):
        sizes = [float(kernel.shape[name]) for name in names if name in kernel.shape]
        groups.setdefault(tuple(sorted(sizes)), []).append(i)
    return list(groups.values())


def halves(kernels: Sequence[Kernel], seed: int) -> tuple[list[Kernel], list[Kernel]]:
    """A random half of the families to fit, and the others."""
    groups = families(kernels)
    order = np.random.default_rng(seed).permutation(len(groups))
    cut = len(groups) // 2
    parts = order[:cut], order[cut:]
    first, second = ([kernels[i] for j in part for i in groups[j]] for part in parts)
    return first, second


def unseen(kind: str, seen: Sequence[Kernel], others: Sequence[Kernel]) -> Split:
    """Errors on the others of constants and residuals that were fitted to the seen ones."""
    return errors_on(fitted(kind, seen), seen, others)


def errors_on(device: Device, seen: Sequence[Kernel], others: Sequence[Kernel]) -> Split:
    """Errors of a device's constants on the others, and with the seen ones as measured points."""
    kind = others[0].kind
    measured = np.array([kernel.seconds for kernel in others])
    modelled = model_times(device, others)
    if kind == "grouped_gemm":
        return _split(modelled, modelled, np.asarray(residual_spread({}, kind)), measured)
    points = residual_points(device, seen)
    scales = scales_of(kind, points)
    times = corrected_times(device, others, points, scales)
    where = np.array([coordinates(kernel) for kernel in others]).T
    spread = np.asarray(residual_spread({kind: points}, kind, *where, scales=scales))
    return _split(modelled, times, spread, measured)


def _split(modelled: Array, times: Array, spread: Array, measured: Array) -> Split:
    return Split(
        model=modelled / measured - 1.0,
        corrected=times / measured - 1.0,
        inside=np.abs(np.log(times / measured)) <= Z80 * spread,
    )


def split_errors(kind: str, kernels: Sequence[Kernel]) -> list[Split]:
    """Random halves for GEMMs; each family left out once for the few shapes of the others."""
    if kind == "gemm":
        return [unseen(kind, *halves(kernels, seed)) for seed in range(SPLITS)]
    left = []
    for group in families(kernels):
        seen = [kernel for i, kernel in enumerate(kernels) if i not in group]
        left.append(unseen(kind, seen, [kernels[i] for i in group]))
    return [
        Split(
            model=np.concatenate([split.model for split in left]),
            corrected=np.concatenate([split.corrected for split in left]),
            inside=np.concatenate([split.inside for split in left]),
        )
    ]


def told(errors: Sequence[Array]) -> str:
    """Median / p90 / max of |error| in percent, mean over the splits."""
    size = [np.abs(split) for split in errors]
    parts = [np.mean([np.quantile(split, q) for split in size]) for q in (0.5, 0.9, 1.0)]
    return " / ".join(f"{100.0 * part:.1f}" for part in parts)
