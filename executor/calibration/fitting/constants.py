"""Fits the catalog's constants of a device and of its links to measured times.

The times are predicted by the simulator's own cost functions, so what is fitted is what is used.
Least squares of log(predicted / measured): a kernel of 10 us counts as much as one of 10 ms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from executor.calibration.cases import kinds
from executor.calibration.cases.samples import Kernels, Sample, link_times, seconds_of
from parsim.arrays import Array
from parsim.cluster.fields import LIMITS
from parsim.cluster.hardware import Device, System
from parsim.least_squares import Descent, Loss, least_loss, numeric_slopes

CHECKS = frozenset((
    *(kinds.COPY, kinds.ACCUMULATE, *kinds.UPDATES, *kinds.LOSS, *kinds.CONVOLUTIONS),
    *(f"{name}_{way}" for name in kinds.PASSES for way in ("forward", "backward")),
))  # fmt: skip
"""Kinds that do not move the constants, because their bytes belong to the software or they have
constants of their own; their own residuals price them."""
GROUPS = (
    ("kernel_latency",),
    ("gemm_efficiency", "gemm_k_half", "gemm_latency"),
    ("attention_forward_efficiency",),
    ("attention_backward_efficiency",),
    ("memory_efficiency",),
)
"""Constants that are fitted together, in this order."""
RATES = (
    *("gemm_efficiency", "attention_forward_efficiency", "attention_backward_efficiency"),
    *("grouped_gemm_efficiency", "grouped_weight_efficiency"),
)
"""Shares of the peaks."""
BYTES = ("memory_efficiency", "gemm_memory_efficiency")
"""Shares of the memory bandwidth."""
DEVICE_CONSTANTS = tuple(name for names in GROUPS for name in names)

PRIOR = 0.03
"""Weight of staying at the catalog's constant, per unit of its logarithm. It decides only what the
times leave open: latency and call overhead occur as a sum, and so do the two overheads of a call.
"""
LEAST_START = 1e-9
"""Where a constant of 0 starts from: 1 ns, or nothing for a half-length."""
LEAST_CALL = 1e-6
"""Start of what a call costs, where the catalog has it in its collectives' latency."""
DESCENT = Descent(rounds=100, needed=1e-12, stride=1.0)
"""A step changes no constant by more than a factor of e."""


def fit_device(device: Device, samples: Sequence[Sample], kernels: Kernels) -> Device:
    """The device with constants fitted to all kernels that are no mere checks.

    One group of constants after the other, each to the kernels that it is for: memory-bound kernels
    deviate most, and would else be paid for by the products. Memory, bandwidth, peaks and
    multiprocessors stay, unless the machine is faster than the catalog's: they are the scale of the
    efficiencies. A constant that no sample depends on stays at the catalog's. Kernels are timed one
    after the other, as a step runs them, so a step sustains what they reach.
    """
    group_of = {kinds.LAUNCH: 0, kinds.GEMM: 1, kinds.FORWARD: 2, kinds.BACKWARD: 3}
    device = replace(device, gemm_sustained=1.0, attention_sustained=1.0)
    for group, names in enumerate(GROUPS):
        chosen = [x for x in samples if group_of.get(x.kind, 4) == group and x.kind not in CHECKS]
        device = _fitted(device, names, chosen, kernels)
    return replace(_on_own_scale(device), calibrated=True)


def _on_own_scale(device: Device) -> Device:
    """Raise peaks or bandwidth, at the same rates, where an efficiency would pass what can be.

    A catalog's CPU core is one of many; efficiencies beyond the limit are refused when read.
    """
    for shares, scale in ((RATES, "peak_flops"), (BYTES, "memory_bandwidth")):
        most = max(getattr(device, name) for name in shares)
        if most > LIMITS["efficiency"].high:
            known = getattr(device, scale)
            peaks = shares is RATES
            raised = {key: most * x for key, x in known.items()} if peaks else most * known
            lowered = {name: getattr(device, name) / most for name in shares}
            device = replace(device, **{scale: raised, **lowered})
    return device


def _fitted(
    device: Device, names: Sequence[str], samples: Sequence[Sample], kernels: Kernels
) -> Device:
    start = np.array([max(getattr(device, name), LEAST_START) for name in names])

    def made(values: Array) -> Device:
        named = dict(zip(names, map(float, values), strict=True))
        return replace(device, **named)  # type: ignore[arg-type]

    def predict(values: Array) -> Array:
        return kernels.times(made(values), samples)

    return made(_nearest(predict, start, seconds_of(samples))) if samples else device


def fit_system(system: System, samples: Sequence[Sample]) -> System:
    """The system with link constants fitted to the times of two ranks.

    `intra.bandwidth` becomes the fastest message's and `intra.efficiency` what the best common
    rate of messages and all-reduces is of it: the cost functions know their product only. Curves
    that others measured give way to this machine's times.
    """
    messages = [sample for sample in samples if sample.kind == kinds.SEND_RECV]
    rates = (sample.shape["bytes"] / sample.seconds for sample in messages)
    fastest = max(rates, default=system.intra.bandwidth)
    base = replace(system, curves=(), intra=replace(system.intra, bandwidth=fastest))
    start = np.array([max(float(value), LEAST_CALL) for value in system_constants(base).values()])

    def with_constants(values: Array) -> System:
        efficiency, latency, overhead, per_rank = map(float, values)
        return replace(
            base,
            intra=replace(base.intra, efficiency=efficiency, latency=latency),
            call_overhead=overhead,
            call_overhead_per_rank=per_rank,
        )

    def predict(values: Array) -> Array:
        return link_times(with_constants(values), samples)

    fitted = with_constants(_nearest(predict, start, seconds_of(samples)))
    share = min(fitted.intra.efficiency, LIMITS["efficiency"].high)
    return replace(fitted, calibrated=True, intra=replace(fitted.intra, efficiency=share))


def system_constants(system: System) -> dict[str, float]:
    """The fitted link constants by their catalog name."""
    return {
        "intra.efficiency": system.intra.efficiency,
        "intra.latency": system.intra.latency,
        "call_overhead": system.call_overhead,
        "call_overhead_per_rank": system.call_overhead_per_rank,
    }


def _nearest(predict: Callable[[Array], Array], start: Array, measured: Array) -> Array:
    """Positive constants whose predictions are nearest to the measured times.

    Over the logarithms of the constants, with a weak pull to the start.
    """

    def errors(moves: Array) -> Array:
        return np.asarray(np.log(predict(start * np.exp(moves)) / measured))

    loss = Loss(weight=2.0, prior=np.full(len(start), PRIOR**2))
    moves, _ = least_loss(errors, numeric_slopes(errors, 1e-5), loss, DESCENT)
    return np.asarray(start * np.exp(moves))
