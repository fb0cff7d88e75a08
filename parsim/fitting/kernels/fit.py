"""Fit the constants of a device's kernels, and how much measured shapes differ from them.

Huber loss of log(predicted / measured) over distinct shapes plus log-normal priors at values that
suit every device, by damped Gauss-Newton with numeric derivatives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from parsim.arrays import Array
from parsim.cluster.hardware import Device
from parsim.cluster.measured.published import Scales
from parsim.cost.kernel.flash import flash_attention_time
from parsim.cost.kernel.kernels import gemm_time, grouped_gemm_time
from parsim.cost.kernel.residuals import left_out, measured_factor
from parsim.least_squares import Descent, Loss, least_loss, numeric_slopes
from parsim.validation.kernel.measured_kernel import Kernel
from parsim.validation.kernel.validate import coordinates

SCALE, HUBER = 0.05, 0.15
"""Unit of a GEMM's log error, and beyond which error it counts linearly."""
FINE, FINE_HUBER = 0.02, 0.02
"""Unit and threshold for attention, whose times are smoother."""
PRIOR = 0.3
"""Weight of a constant one spread away from its prior, in squared units of error."""
ROUNDS = 320
NOISE = 0.01
"""Repeats of one shape agree to 1 % (vidur, between runs of different models)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelConstant:
    """A field of Device: prior, spread of its logarithm, limits; `times` the named field of it."""

    name: str
    prior: float
    spread: float
    low: float
    high: float
    times: str = ""

    def start(self, device: Device) -> float:
        """The prior on a device."""
        return self.prior * (getattr(device, self.times) if self.times else 1.0)


def _constant(name: str, prior: float, spread: float, low: float, high: float) -> KernelConstant:
    return KernelConstant(name=name, prior=prior, spread=spread, low=low, high=high)


GEMM = (
    _constant("gemm_efficiency", 0.85, 0.2, 0.3, 1.25),
    _constant("gemm_latency", 4e-6, 0.5, 0.3e-6, 30e-6),
    _constant("gemm_k_half", 80.0, 0.7, 1.0, 600.0),
    KernelConstant(
        name="gemm_cache_bandwidth",
        prior=2.5,
        spread=0.4,
        low=0.5,
        high=20.0,
        times="memory_bandwidth",
    ),
    _constant("gemm_memory_efficiency", 0.8, 0.15, 0.3, 1.0),
    _constant("gemm_wave_quantisation", 0.5, 0.5, 0.02, 1.0),
    _constant("gemm_split_latency", 3e-6, 0.7, 0.1e-6, 40e-6),
    _constant("gemm_clock_drop", 1.1, 0.15, 1.0, 2.0),
    _constant("gemm_boost_time", 200e-6, 1.0, 5e-6, 3e-3),
)
ACCUMULATE = _constant("gemm_accumulate_factor", 1.04, 0.05, 0.8, 1.3)
GROUPED = (
    _constant("grouped_gemm_efficiency", 0.5, 0.5, 0.1, 1.2),
    _constant("grouped_weight_efficiency", 0.4, 0.5, 0.1, 1.2),
    _constant("grouped_gemm_latency", 4e-6, 1.0, 0.1e-6, 100e-6),
    _constant("grouped_gemm_floor", 5e-6, 1.0, 0.1e-6, 100e-6),
)


def attention_constants(direction: str) -> tuple[KernelConstant, ...]:
    """Constants of one direction, "forward" or "backward"."""
    head = f"attention_{direction}"
    return (
        _constant(f"{head}_efficiency", 0.6, 0.5, 0.05, 1.2),
        _constant(f"{head}_wide", 0.85, 0.2, 0.3, 1.2),
        _constant(f"{head}_latency", 100e-6, 1.5, 1e-6, 1e-3),
        _constant(f"{head}_floor", 100e-6, 1.5, 1e-6, 1e-3),
    )


def distinct_kernels(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Each shape once with the median of its times, in an order that the rows' does not change."""
    repeats: dict[tuple[Any, ...], list[Kernel]] = {}
    for kernel in kernels:
        repeats.setdefault((kernel.precision, *sorted(kernel.shape.items())), []).append(kernel)
    ordered = sorted(repeats.items(), key=lambda item: repr(item[0]))
    return [
        replace(rows[0], seconds=float(np.median([row.seconds for row in rows])))
        for _, rows in ordered
    ]


def bare(device: Device) -> Device:
    """The device without what was measured on it: the model alone."""
    return replace(device, residuals={}, calibrated=True)


def model_times(device: Device, kernels: Sequence[Kernel]) -> Array:
    """Seconds of kernels of one kind by the device's constants alone."""
    seconds = np.zeros(len(kernels))
    device = bare(device)
    for precision, fixed, rows in _alike(kernels):
        shapes = [kernels[i].shape for i in rows]
        sizes: dict[str, Any] = {
            name: np.array([shape[name] for shape in shapes], dtype=np.float64)
            for name in shapes[0]
            if name not in fixed
        }
        if kernels[rows[0]].kind == "gemm":
            times = gemm_time(device, precision, isolated=True, **sizes, **fixed)
        elif kernels[rows[0]].kind == "grouped_gemm":
            times = grouped_gemm_time(device, precision, **sizes, **fixed)
        else:
            times = flash_attention_time(device, precision, isolated=True, **sizes, **fixed)
        seconds[rows] = times
    return seconds


_FIXED = (
    "value",
    "layout",
    "out_value",
    "accumulate",
    "weight_gradient",
    "gradient_value",
    "backward",
    "head_dim",
    "seq_len",
)


def _alike(kernels: Sequence[Kernel]) -> list[tuple[str, dict[str, Any], list[int]]]:
    """Rows that one call of a cost function prices together."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for i, kernel in enumerate(kernels):
        fixed = tuple((name, kernel.shape[name]) for name in _FIXED if name in kernel.shape)
        groups.setdefault((kernel.precision, fixed), []).append(i)
    return [(precision, dict(fixed), rows) for (precision, fixed), rows in groups.items()]


def fit_constants(
    device: Device,
    kernels: Sequence[Kernel],
    constants: Sequence[KernelConstant],
    *,
    fine: bool = False,
) -> Device:
    """The device with constants fitted to kernels of one kind."""
    start = np.array([constant.start(device) for constant in constants])
    scale = np.array([constant.start(device) / constant.prior for constant in constants])
    low = np.log(np.array([constant.low for constant in constants]) * scale / start)
    high = np.log(np.array([constant.high for constant in constants]) * scale / start)
    measured = np.array([kernel.seconds for kernel in kernels])

    def made(move: Array) -> Device:
        values = start * np.exp(move)
        named = {constant.name: float(x) for constant, x in zip(constants, values, strict=True)}
        return replace(device, **named)  # type: ignore[arg-type]

    def errors(move: Array) -> Array:
        return np.asarray(np.log(model_times(made(move), kernels) / measured))

    spread = np.array([constant.spread for constant in constants])
    unit, huber = (FINE, FINE_HUBER) if fine else (SCALE, HUBER)
    loss = Loss(weight=1.0 / unit**2, prior=PRIOR / spread**2, corner=huber)
    descent = Descent(rounds=ROUNDS, needed=1e-7, damping=1e-2, calmer=4.0, limits=(low, high))
    return made(least_loss(errors, numeric_slopes(errors, 0.02), loss, descent)[0])


def residual_points(device: Device, kernels: Sequence[Kernel]) -> tuple[tuple[float, ...], ...]:
    """Coordinates and measured over modelled time of distinct kernels of one kind."""
    ratios = np.array([kernel.seconds for kernel in kernels]) / model_times(device, kernels)
    return tuple(
        (*coordinates(kernel), float(ratio)) for kernel, ratio in zip(kernels, ratios, strict=True)
    )


PRODUCTS = Scales(spread=0.1, lengths=(1.2, 0.35, 1.5, 2.0), jagged=0.05, noise=NOISE)
"""Octaves of m, n, k and layout. Lengths by the likelihood of each device's own table lie around
these, differ between halves of one table, and predict the other half no better."""
ATTENTION = Scales(spread=0.1, lengths=(3.0, 2.0, 0.5), jagged=0.0, noise=NOISE)
"""Octaves of FLOPs, sequence length and head size, known from some ten shapes."""
WITHIN, DEVIATIONS = 0.8, 1.2816
"""The spread is such that 80 % of points lie as near to what the others say as 80 % of a normal
distribution do."""


def fit_scales(points: Sequence[tuple[float, ...]], start: Scales) -> Scales:
    """The spread of a table, by its points left out one by one; the lengths are those of start."""
    scales = start
    for _ in range(2):  # once would do, but for the noise, which stays
        apart = np.quantile(np.abs(left_out(points, scales)), WITHIN) / DEVIATIONS
        scales = replace(
            scales, spread=scales.spread * float(apart), jagged=scales.jagged * float(apart)
        )
    return scales


def corrected_times(
    device: Device,
    kernels: Sequence[Kernel],
    points: tuple[tuple[float, ...], ...],
    scales: Scales,
) -> Array:
    """Seconds of kernels by the constants and by the measured points of others."""
    kind = kernels[0].kind
    where = np.array([coordinates(kernel) for kernel in kernels]).T
    factor = measured_factor({kind: points}, kind, *where, scales=scales)
    return np.asarray(model_times(device, kernels) * factor)
