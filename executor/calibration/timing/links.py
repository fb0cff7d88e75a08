"""Times collectives of groups of ranks, messages, and what compute loses beside them.

A group is the first ranks of all, alone: the others wait in a barrier, so links are idle but for
it. What groups at once do to each other is simulated (`parsim/sim/contention/contention.py`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from executor.calibration.cases import kinds
from executor.calibration.cases.rank_groups import RankGroups
from executor.calibration.cases.samples import Sample, link_time
from executor.calibration.cases.workloads import TimedCase
from executor.calibration.choice.belief import Shape
from executor.calibration.choice.candidates import AHEAD
from executor.calibration.choice.choose import Choice, choose
from executor.calibration.choice.spread import ShapeCandidate, rows_known
from executor.calibration.timing.bench import Bench
from executor.collectives.timing import Team, Work, team, work_of
from parsim.arrays import Array
from parsim.cluster.hardware import System
from parsim.units import KIB, MIB

SIZES = (4 * KIB, 64 * KIB, 512 * KIB, 2 * MIB, 8 * MIB, 32 * MIB, 128 * MIB, 1024 * MIB)
"""Bytes of the whole array: 4 or 5 sizes fit the constants, the others their residuals."""
KINDS = (kinds.ALL_REDUCE, kinds.ALL_GATHER, kinds.REDUCE_SCATTER)
"""Collectives of every group; no plan broadcasts, and groups of experts exchange tokens too."""
REPEATS = 20
ARRAYS = 3.0
"""Arrays of a size that a collective holds at once: input, output, and the library's own."""
LATE = 1.3
EVENLY = 0.2
"""Share of the weight of collectives that is the same for all, whatever the plans send."""
FIXED = 0.005
"""Seconds that a collective costs beside its repeats."""


def link_choice(
    system: System,
    groups: RankGroups,
    *,
    memory: float,
    seconds: float,
    cpu: bool,
    known: frozenset[Shape] = frozenset(),
    needs: Mapping[Shape, Array] = MappingProxyType({}),
) -> Choice:
    """Kinds, groups and sizes to time, within a time and a memory; alike on all ranks.

    `needs` are shapes that plans send, each with its share of every plan's link seconds (P,); what
    no plan sends has EVENLY of the weight together, for other plans.
    """
    candidates, kind = [], "cpu" if cpu else "cuda"
    for case in (*_needed_cases(needs, groups), *link_cases(groups)):
        once = link_time(system, case.kind, case.shape)
        once *= 2.0 if case.kind == kinds.SEND_RECV else 1.0
        fits = ARRAYS * case.shape["bytes"] <= memory
        cost = FIXED + REPEATS * (once + AHEAD[kind]) if fits else math.inf
        shape = (case.kind, tuple(case.shape.values()))
        candidates.append(ShapeCandidate(shape=shape, case=case, cost=cost))
    even = np.full((1, len(candidates)), 1.0 / len(candidates))
    nothing = np.zeros(max((len(share) for share in needs.values()), default=1))
    needed = np.stack([needs.get(x.shape, nothing) for x in candidates], axis=1)
    sent = needed.sum(axis=1, keepdims=True)
    weights = (1.0 - EVENLY * (sent > 0.0)) * np.where(sent > 0.0, needed, even) + EVENLY * even * (
        sent > 0.0
    )
    return choose(candidates, weights, seconds, cpu=cpu, known=rows_known(candidates, known))


def _needed_cases(needs: Mapping[Shape, Array], groups: RankGroups) -> Iterator[TimedCase]:
    """What plans send in groups that this machine holds, where no usual size is the same."""
    usual = {(case.kind, tuple(case.shape.values())) for case in link_cases(groups)}
    for kind, where in needs:
        timeable = kind in kinds.LINKS and (len(where) == 1 or int(where[1]) in groups.sizes)
        if timeable and (kind, where) not in usual:
            yield TimedCase(kind, dict(zip(("bytes", "ranks"), where, strict=False)))


def link_cases(groups: RankGroups) -> Iterator[TimedCase]:
    """Collectives of every group by size, and messages between two ranks."""
    for size in map(float, SIZES):
        for ranks in groups.sizes:
            exchanges = (kinds.ALL_TO_ALL,) if ranks in groups.experts else ()
            whole = size - size % (4 * ranks)  # as many fp32 values for each rank
            for kind in (*KINDS, *exchanges):
                yield TimedCase(kind, {"bytes": whole, "ranks": float(ranks)})
        yield TimedCase(kinds.SEND_RECV, {"bytes": size})


def link_samples(bench: Bench, choice: Choice, seconds: float) -> Iterator[Sample]:
    """Median times of the chosen kinds and sizes; to be called on all ranks, at least two.

    All ranks stop together where it takes LATE times the time, but not before every kind of every
    group has one size.
    """
    sizes = sorted({int(case.shape.get("ranks", 2.0)) for case in choice.cases})
    team_of_size = {size: team(range(size)) for size in sizes}  # every rank makes all of them
    end, timed = time.perf_counter() + LATE * seconds, set[tuple[str, float]]()
    for case in choice.cases:
        group = case.kind, case.shape.get("ranks", 2.0)
        late = torch.tensor(float(time.perf_counter() > end), device=bench.device)
        dist.broadcast(late, 0)
        if late and group in timed:
            continue
        timed.add(group)
        share = seconds / len(choice.cases)
        lasted = bench.typical(_work(case, team_of_size, bench.device), share)
        halves = 2.0 if case.kind == kinds.SEND_RECV else 1.0
        yield Sample(kind=case.kind, shape=case.shape, seconds=lasted / halves)


def _work(case: TimedCase, team_of_size: Mapping[int, Team], device: torch.device) -> Work | None:
    """This rank's call; None where it only waits."""
    size, group = int(case.shape["bytes"]), team_of_size[int(case.shape.get("ranks", 2.0))]
    if not group.joined:
        return None
    if case.kind != kinds.SEND_RECV:
        return work_of(case.kind, size, group, device)
    data = torch.zeros(size // 4, device=device)
    return lambda: _round_trip(data)


def _round_trip(data: Tensor) -> None:
    """Rank 0 sends and gets back; rank 1 mirrors it. Two messages."""
    if dist.get_rank() == 0:
        dist.send(data, 1)
        dist.recv(data, 1)
    else:
        dist.recv(data, 0)
        dist.send(data, 0)
