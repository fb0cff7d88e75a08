"""The shapes that a calibration may measure: those of the plans, and sizes around them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from executor.calibration.belief import Shape
from executor.calibration.choose import Choice, choose
from executor.calibration.held import held_rows
from executor.calibration.sample import Kernels
from executor.calibration.spread import Candidate
from executor.calibration.targets import Target
from executor.calibration.workloads import (
    BACKWARD,
    COPY,
    FORWARD,
    GEMM,
    LAUNCH,
    OPTIMIZER,
    Case,
    attention_cases,
    kernel_cases,
)
from parsim.cluster.hardware import Device
from parsim.cost.plan_kernels import plan_kernels

LEAST_SECONDS = {"cpu": 0.02, "cuda": 0.002}
"""A shape is repeated for so long, or REPEATS times; on a GPU ten timings of GRAIN."""
REPEATS, MOST_REPEATS, WARM_UP = 3, 50, 2
GRAIN = 200e-6
"""Least length of one timing, seconds (see `executor/calibration/kernels.py`)."""
SET_UP = {"cpu": 3e-9, "cuda": 2e-11}
"""Seconds to make a byte of random inputs: 3 ms a MiB measured on a CPU core; on a GPU assumed."""
FIXED = {"cpu": 0.01, "cuda": 0.02}
"""Seconds that a case costs beside: Python, first calls."""
AHEAD = {"cpu": 0.0, "cuda": 3e-3}
"""Seconds of products before each timing, so that the host is ahead (ten of edge 4,096)."""
RING, MOST_SETS = {"cpu": 48 << 20, "cuda": 128 << 20}, 16
"""Bytes of all sets of inputs, and how many sets at most (as the bench makes them)."""
SIZES = {"cpu": (1 << 16, 1 << 20, 1 << 24), "cuda": (1 << 20, 1 << 24, 1 << 28)}
"""Bytes of memory-bound kernels: 1, 16, 256 MiB; a core of a CPU has 1 / 60 of the bandwidth."""
LENGTHS = (0.25, 1.0, 4.0)
"""Sequences beside a plan's own: work of 1 / 16 to 16 times."""
MEMORY_SHARE = 0.25
"""Of the device's memory for the inputs of one case."""
DEAREST = 0.25
"""A single shape may take so much of the time."""


def choice(
    targets: Sequence[Target],
    spread: Iterable[Case],
    kernels: Kernels,
    device: Device,
    *,
    kind: str,
    seconds: float,
    held: frozenset[Shape] = frozenset(),
) -> Choice:
    """Choose what to measure for some plans within a time.

    Args:
        targets: the candidate plans.
        spread: shapes over the range that training meets.
        kernels: how a case is priced.
        device: as the catalog has it.
        kind: "cpu" or "cuda".
        seconds: for all measuring.
        held: shapes that an earlier calibration measured, as its file has them.
    """
    cases, weighed = _cases(targets, spread, kernels, kind), _weights(targets)
    shapes = list(dict.fromkeys([*cases, *weighed]))
    candidates = [
        Candidate(shape=shape, case=cases.get(shape),
                  cost=_cost(cases.get(shape), kernels, device, kind, seconds))
        for shape in shapes
    ]  # fmt: skip
    weights = np.zeros((len(targets), len(shapes)))
    place = {shape: i for i, shape in enumerate(shapes)}
    for shape, column in weighed.items():
        weights[:, place[shape]] = column
    return choose(candidates, weights, seconds, cpu=kind == "cpu",
                  held=held_rows(candidates, held))  # fmt: skip


def shape_of(case: Case) -> Shape:
    """A case's kind and the coordinates of its residuals, to nine digits."""
    return case.kind, rounded(x for name, x in case.shape.items() if name != "launches")


def rounded(values: Iterable[float]) -> tuple[float, ...]:
    """Coordinates to nine digits: how shapes are told apart."""
    return tuple(float(f"{x:.9g}") for x in values)


def _weights(targets: Sequence[Target]) -> dict[Shape, NDArray[np.float64]]:
    """Each shape's share of the kernel time of each target's step."""
    found: dict[Shape, NDArray[np.float64]] = {}
    for row, target in enumerate(targets):
        kernels = plan_kernels(target.job, target.plan)
        total = sum(one.weight for one in kernels)
        for one in kernels:
            shape = one.kind or "scores", rounded(one.where)
            found.setdefault(shape, np.zeros(len(targets)))[row] += one.weight / total
    return found


def _cases(
    targets: Sequence[Target], spread: Iterable[Case], kernels: Kernels, kind: str
) -> dict[Shape, Case]:
    """Everything that can be run by itself, the plans' own shapes first."""
    found: dict[Shape, Case] = {}
    for target in targets:
        for case in kernel_cases(target.workload, kernels.software):
            found.setdefault(shape_of(case), case)
        for case in _updates(target, kernels):
            found.setdefault(shape_of(case), case)
    for case in (*spread, *_attention(targets)):
        found.setdefault(shape_of(case), case)
    firsts: dict[str, Case] = {}
    for case in found.values():
        firsts.setdefault(case.kind, case)
    for case in firsts.values():
        for size in SIZES[kind]:
            for made in _resized(case, float(size)):
                found.setdefault(shape_of(made), made)
    return found


def _updates(target: Target, kernels: Kernels) -> Iterator[Case]:
    """The optimizer steps of a plan."""
    for one in plan_kernels(target.job, target.plan):
        if one.kind == OPTIMIZER:
            count = round(one.where[0] / kernels.software.optimizer_bytes)
            yield Case(OPTIMIZER, {"bytes": one.where[0], "launches": 1}, (count,))


def _attention(targets: Sequence[Target]) -> Iterator[Case]:
    """The first plan's attention at shorter and longer sequences."""
    for case in kernel_cases(targets[0].workload, targets[0].job.software):
        if case.kind != FORWARD:
            continue
        batch, heads, size, causal = case.sizes
        for factor in LENGTHS:
            length = max(round(case.shape["seq_len"] * factor), 16)
            yield from attention_cases(batch, heads, length, size, causal=bool(causal))


def _resized(case: Case, size: float) -> Iterator[Case]:
    """A memory-bound case at about so many bytes: more or fewer tokens (or values)."""
    if case.kind in (GEMM, FORWARD, BACKWARD, LAUNCH, OPTIMIZER, COPY):
        return  # no bytes, or sizes of their own in `memory_cases`
    before, first = case.shape["bytes"], case.sizes[0]
    count = max(round(first * size / before), 1)
    yield Case(case.kind, {**case.shape, "bytes": before / first * count},
               (count, *case.sizes[1:]))  # fmt: skip


def _cost(case: Case | None, kernels: Kernels, device: Device, kind: str, seconds: float) -> float:
    """Seconds of measuring a case; infinite where it is too large for memory or time."""
    if case is None:
        return math.inf
    once, moved = kernels.time(device, case.kind, case.shape), _moved(case)
    if 2.0 * moved > MEMORY_SHARE * device.memory:
        return math.inf
    lasting = max(once, GRAIN)
    repeats = min(max(int(LEAST_SECONDS[kind] / lasting), REPEATS), MOST_REPEATS)
    timed = (WARM_UP + repeats) * lasting + repeats * AHEAD[kind]
    least = 1.0 if case.kind == OPTIMIZER else 2.0
    sets = 1.0 if case.kind == LAUNCH else min(max(RING[kind] / moved, least), MOST_SETS)
    found = FIXED[kind] + SET_UP[kind] * sets * moved + timed
    found *= 2.0 if case.kind == OPTIMIZER else 1.0  # timed at two moments
    return found if found <= DEAREST * seconds else math.inf


def _moved(case: Case) -> float:
    """Bytes of one set of a case's inputs and results."""
    if case.kind == GEMM:
        m, n, k = (case.shape[name] for name in "mnk")
        return 4.0 * (m * k + k * n + m * n)
    if case.kind in (FORWARD, BACKWARD):
        batch, heads, size, _ = case.sizes
        return 16.0 * batch * heads * size * case.shape["seq_len"]
    return case.shape["bytes"]
