"""The shapes that a calibration may measure: those of the plans, and sizes around them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from executor.calibration.cases import kinds
from executor.calibration.cases.networks import convolution_of
from executor.calibration.cases.setting import CalibrationSetting
from executor.calibration.cases.setting import cases as spread_cases
from executor.calibration.cases.targets import Target
from executor.calibration.cases.workloads import (
    TimedCase,
    attention_cases,
    bytes_of_updates,
    update_case,
)
from executor.calibration.choice.belief import Shape
from executor.calibration.choice.choose import Choice, choose
from executor.calibration.choice.spread import ShapeCandidate, rows_known
from executor.calibration.gaps import NOT_REPRESENTABLE, OUT_OF_MEMORY, TIME_OVER
from parsim.arrays import Array
from parsim.cost.software import Software
from parsim.cost.step.plan_kernels import plan_kernels

LEAST_SECONDS = {"cpu": 0.02, "cuda": 0.002}
"""A shape is repeated for so long, or REPEATS times; on a GPU ten timings of GRAIN."""
REPEATS, MOST_REPEATS, WARM_UP = 3, 50, 2
GRAIN = 200e-6
"""Kernels are repeated within one timing until it lasts this long, seconds."""
SET_UP = {"cpu": 3e-9, "cuda": 2e-11}
"""Seconds to make a byte of random inputs: 3 ms a MiB measured on a CPU core; on a GPU assumed."""
FIXED = {"cpu": 0.01, "cuda": 0.02}
"""Seconds that a case costs beside: Python, first calls."""
AHEAD = {"cpu": 0.0, "cuda": 3e-3}
"""Seconds of products before each timing, so that the host is ahead (`timing.ballast`)."""
RING, MOST_SETS = {"cpu": 48 << 20, "cuda": 128 << 20}, 16
"""Bytes of all sets of inputs, beyond the second-level cache, and how many sets at most."""
SIZES = {"cpu": (1 << 16, 1 << 20, 1 << 24), "cuda": (1 << 20, 1 << 24, 1 << 28)}
"""Bytes of memory-bound kernels: 1, 16, 256 MiB; a core of a CPU has 1 / 60 of the bandwidth."""
NOT_RESIZED = (
    *(kinds.GEMM, kinds.FORWARD, kinds.BACKWARD),
    *(kinds.LAUNCH, *kinds.UPDATES, kinds.COPY, *kinds.CONVOLUTIONS),
)
"""Kinds that have no bytes, or sizes of their own in `memory_cases`."""
LENGTHS = (0.25, 1.0, 4.0)
"""Sequences beside a plan's own: work of 1 / 16 to 16 times."""
MEMORY_SHARE = 0.25
"""Share of the device's memory for the inputs of one case."""
DEAREST = 0.25
"""A single shape may take so much of the time."""


def choice(
    setting: CalibrationSetting, seconds: float, known: frozenset[Shape] = frozenset()
) -> Choice:
    """Choose what to measure for the setting's plans within a time.

    `known` are shapes that an earlier calibration measured, as its file has them.
    """
    cases, weighed = _cases(setting), _weights(setting.targets)
    shapes = list(dict.fromkeys([*cases, *weighed]))
    candidates = [
        _candidate(shape, case, setting, seconds)
        for shape, case in ((shape, cases.get(shape)) for shape in shapes)
    ]
    nothing = np.zeros(len(setting.targets))
    weights = np.stack([weighed.get(shape, nothing) for shape in shapes], axis=1)
    cpu = setting.report.kind == "cpu"
    return choose(candidates, weights, seconds, cpu=cpu, known=rows_known(candidates, known))


def shape_of(case: TimedCase) -> Shape:
    """A case's kind and the coordinates of its residuals, to nine digits."""
    return case.kind, rounded(x for name, x in case.shape.items() if name not in kinds.BESIDE)


def rounded(values: Iterable[float]) -> tuple[float, ...]:
    """Coordinates to nine digits: how shapes are told apart."""
    return tuple(float(f"{x:.9g}") for x in values)


def _weights(targets: Sequence[Target]) -> dict[Shape, Array]:
    """Each shape's share of the kernel time of each target's step."""
    shares: dict[Shape, Array] = {}
    for row, target in enumerate(targets):
        kernels = plan_kernels(target.job, target.plan)
        total = sum(kernel.weight for kernel in kernels)
        for kernel in kernels:
            shape = kernel.kind or "scores", rounded(kernel.where)
            shares.setdefault(shape, np.zeros(len(targets)))[row] += kernel.weight / total
    return shares


def _cases(setting: CalibrationSetting) -> dict[Shape, TimedCase]:
    """Everything that can be run by itself, the plans' own shapes first."""
    listed = [case for target in setting.targets for case in _own(target, setting.kernels.software)]
    listed += [*spread_cases(setting), *_attention(setting.targets[0])]
    cases, firsts = dict[Shape, TimedCase](), dict[str, TimedCase]()
    for case in listed:
        cases.setdefault(shape_of(case), case)
        firsts.setdefault(case.kind, case)
    for case in firsts.values():
        for size in SIZES[setting.report.kind]:
            for resized in _resized(case, float(size)):
                cases.setdefault(shape_of(resized), resized)
    return cases


def _own(target: Target, software: Software) -> Iterator[TimedCase]:
    """The kernels of a plan, its updates among them."""
    yield from target.cases()
    for kernel in plan_kernels(target.job, target.plan):
        each = bytes_of_updates(software).get(kernel.kind)
        if each is not None:
            yield update_case(kernel.kind, kernel.where[0], round(kernel.where[0] / each))


def _attention(target: Target) -> Iterator[TimedCase]:
    """A plan's attention at shorter and longer sequences."""
    for case in target.cases():
        if case.kind != kinds.FORWARD:
            continue
        batch, heads, size, causal = case.sizes
        for factor in LENGTHS:
            length = max(round(case.shape["seq_len"] * factor), 16)
            yield from attention_cases(batch, heads, length, size, causal=bool(causal))


def _resized(case: TimedCase, size: float) -> Iterator[TimedCase]:
    """A memory-bound case at about so many bytes: more or fewer tokens (or values)."""
    if case.kind in NOT_RESIZED:
        return
    before, first = case.shape["bytes"], case.sizes[0]
    count = max(round(first * size / before), 1)
    yield TimedCase(
        case.kind, {**case.shape, "bytes": before / first * count}, (count, *case.sizes[1:])
    )


def _candidate(
    shape: Shape, case: TimedCase | None, setting: CalibrationSetting, seconds: float
) -> ShapeCandidate:
    """A shape with its cost, refused where it cannot be run, or is too large for memory or time."""
    if case is None:
        why = f"{NOT_REPRESENTABLE}: no kernel by itself"
    elif 2.0 * _moved(case) > MEMORY_SHARE * setting.device.memory:
        why = f"{OUT_OF_MEMORY}: its inputs are beyond a quarter of the device's"
    else:
        cost = _cost(case, setting)
        if cost <= DEAREST * seconds:
            return ShapeCandidate(shape=shape, case=case, cost=cost)
        why = f"{TIME_OVER}: about {cost:.1f} s alone, of {seconds:.1f} s for kernels"
    return ShapeCandidate(shape=shape, case=case, cost=math.inf, refused=why)


def _cost(case: TimedCase, setting: CalibrationSetting) -> float:
    """Seconds of measuring a case."""
    kind = setting.report.kind
    once, moved = setting.kernels.time(setting.device, case.kind, case.shape), _moved(case)
    lasting = max(once, GRAIN)
    repeats = min(max(int(LEAST_SECONDS[kind] / lasting), REPEATS), MOST_REPEATS)
    timed = (WARM_UP + repeats) * lasting + repeats * AHEAD[kind]
    cost = FIXED[kind] + SET_UP[kind] * input_sets(case, kind) * moved + timed
    cost *= 2.0 if case.kind in kinds.BEHIND else 1.0  # and what runs before it
    return cost * (2.0 if case.kind in kinds.UPDATES else 1.0)  # and again, alone


def input_sets(case: TimedCase, kind: str) -> float:
    """Sets of inputs that a case runs over; the bench makes the next whole number of them."""
    if case.kind == kinds.LAUNCH:
        return 1.0
    least = 1.0 if case.kind == kinds.OPTIMIZER else 2.0  # it holds 16 bytes for each 28 it moves
    return min(max(RING[kind] / _moved(case), least), MOST_SETS)


def _moved(case: TimedCase) -> float:
    """Bytes of one set of a case's inputs and results."""
    if case.kind == kinds.GEMM:
        m, n, k = (case.shape[name] for name in "mnk")
        return 4.0 * (m * k + k * n + m * n)
    if case.kind in (kinds.FORWARD, kinds.BACKWARD):
        batch, heads, size, _ = case.sizes
        return 16.0 * batch * heads * size * case.shape["seq_len"]
    if case.kind in kinds.CONVOLUTIONS:
        op, images = convolution_of(case.shape)
        return 4.0 * (images * (op.values_in + op.values_out) + op.weights)
    # clipping reads and writes the same values
    return case.shape["bytes"] * (0.5 if case.kind == kinds.CLIP else 1.0)
