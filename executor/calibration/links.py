"""Times collectives and messages between the ranks, and what compute loses beside them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from statistics import median

import torch
import torch.distributed as dist
from torch import Tensor

from executor.calibration.fit import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER, SEND_RECV, Sample
from executor.calibration.kernels import Bench
from executor.parallel import buckets

SIZES = (4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20)
KINDS = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, SEND_RECV)
ROUNDS = 5


def link_samples(bench: Bench, seconds: float) -> Iterator[Sample]:
    """Median times of every kind and size; to be called on two ranks."""
    share = seconds / (len(SIZES) * len(KINDS))
    for size in SIZES:
        data = torch.zeros(size // 4, device=bench.device)
        part = torch.zeros(data.numel() // dist.get_world_size(), device=bench.device)
        for kind in KINDS:
            lasted = bench.typical(_work(kind, data, part), share)
            halves = 2.0 if kind == SEND_RECV else 1.0
            yield Sample(kind=kind, shape={"bytes": float(size)}, seconds=lasted / halves)


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
