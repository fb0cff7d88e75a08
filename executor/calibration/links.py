"""Times collectives and messages between the ranks, and what compute loses beside them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from statistics import median

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from executor.calibration.belief import Shape
from executor.calibration.choose import Candidate, Choice, choose
from executor.calibration.held import held_rows
from executor.calibration.kernels import Bench
from executor.calibration.sample import (
    ALL_GATHER,
    ALL_REDUCE,
    REDUCE_SCATTER,
    SEND_RECV,
    Sample,
    link_time,
    pair,
)
from executor.calibration.workloads import Case
from executor.parallel import buckets
from parsim.cluster.hardware import System

KIB, MIB = 1 << 10, 1 << 20
SIZES = (4 * KIB, 64 * KIB, 512 * KIB, 2 * MIB, 8 * MIB, 32 * MIB, 128 * MIB, 1024 * MIB)
"""Of the whole array, bytes: 4 or 5 fit the constants, the others their residuals."""
KINDS = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, SEND_RECV)
ROUNDS = 5
REPEATS = 20
ARRAYS = 3.0
"""Arrays of a size that a collective holds at once: input, output, and the library's own."""
LATE = 2.0
FIXED = 0.005
"""Seconds that a collective costs beside its repeats."""


def link_choice(
    system: System, *, memory: float, seconds: float, cpu: bool,
    held: frozenset[Shape] = frozenset(),
) -> Choice:  # fmt: skip
    """Kinds and sizes to time between two ranks, within a time and a memory; alike on all ranks."""
    where = pair(system)
    candidates = []
    for kind in KINDS:
        for size in SIZES:
            shape = {"bytes": float(size)}
            once = link_time(system, where, kind, shape) * (2.0 if kind == SEND_RECV else 1.0)
            cost = FIXED + REPEATS * once if ARRAYS * size <= memory else math.inf
            case = Case(kind, shape)
            candidates.append(Candidate(shape=(kind, (float(size),)), case=case, cost=cost))
    weights = np.full((1, len(candidates)), 1.0 / len(candidates))
    return choose(candidates, weights, seconds, cpu=cpu, held=held_rows(candidates, held))


def link_samples(bench: Bench, chosen: Choice, seconds: float) -> Iterator[Sample]:
    """Median times of the chosen kinds and sizes; to be called on two ranks.

    All ranks stop together where it takes twice the time.
    """
    end = time.perf_counter() + LATE * seconds
    for case in chosen.cases:
        late = torch.tensor(float(time.perf_counter() > end), device=bench.device)
        dist.broadcast(late, 0)
        if late:
            return
        size = int(case.shape["bytes"])
        data = torch.zeros(size // 4, device=bench.device)
        part = torch.zeros(data.numel() // dist.get_world_size(), device=bench.device)
        share = seconds / len(chosen.cases)
        lasted = bench.typical(_work(case.kind, data, part), share)
        halves = 2.0 if case.kind == SEND_RECV else 1.0
        yield Sample(kind=case.kind, shape=case.shape, seconds=lasted / halves)


def _work(kind: str, data: Tensor, part: Tensor) -> Callable[[], object]:
    if kind == ALL_REDUCE:
        return lambda: dist.all_reduce(data)
    if kind == ALL_GATHER:
        return lambda: buckets.ALL_GATHER(data, part)
    if kind == REDUCE_SCATTER:
        return lambda: buckets.REDUCE_SCATTER(part, data)
    return lambda: _round_trip(data)


def _round_trip(data: Tensor) -> None:
    """Rank 0 sends and gets back; rank 1 mirrors it. Two messages."""
    if dist.get_rank() == 0:
        dist.send(data, 1)
        dist.recv(data, 1)
    else:
        dist.recv(data, 0)
        dist.send(data, 0)


def interference(bench: Bench) -> float:
    """Share of an all-reduce's time that products beside it lose, 0 to 1, on the slower rank.

    (T - max(C, G)) / min(C, G) of compute alone C, the collective alone G, and both together T.
    """
    a = bench.operators.normal(512, 512)
    data = torch.zeros(4 << 20, device=bench.device)

    def compute() -> None:
        for _ in range(10 if bench.device.type == "cpu" else 500):
            torch.mm(a, a)

    def both() -> None:
        work = dist.all_reduce(data, async_op=True)
        compute()
        work.wait()

    alone, wire, together = (
        _slowest(bench, work) for work in (compute, lambda: dist.all_reduce(data), both)
    )
    lost = (together - max(alone, wire)) / min(alone, wire)
    return min(max(lost, 0.0), 1.0)


def _slowest(bench: Bench, work: Callable[[], object]) -> float:
    """Median over rounds of the slowest rank's seconds, host and device done."""
    found = []
    for _ in range(ROUNDS + 1):
        dist.barrier()
        began = time.perf_counter()
        work()
        if bench.device.type == "cuda":
            torch.cuda.synchronize(bench.device)
        lasted = torch.tensor(time.perf_counter() - began, device=bench.device)
        dist.all_reduce(lasted, op=dist.ReduceOp.MAX)
        found.append(float(lasted))
    return median(found[1:])
