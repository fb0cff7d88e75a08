"""The best stages over a hierarchy of bandwidths: PipeDream's dynamic program, all of it in arrays.

    level 1   devices of a node, 10 GB/s       A1(i, j, m): states i..j on m devices
    level 2   nodes, 1.25 GB/s                 A2(0, j, m): a "layer" is now A1(., ., all devices)

    one stage    (C + 4 (m - 1) W / (m B) / g) / m
    split at k   max(A(i, k, m - m'), (C' + 4 (m' - 1) W' / (m' B)) / m', transfers)

C are seconds of the states, W bytes of weights, B bytes/s, g devices in a unit of the level. The
optimum minimises the slowest stage, the time between micro-batches in the steady state. With
`transfers` the message in front of a stage, 2 O(k) / (B m'), and that behind it count too. It is
proven optimal for this model: every cut, every number of replicas and all levels are tried. With
`memory` a stage holds 1 + ceil(units behind it / m) copies of its weights and activations.

Source: SOSP 2019, section 3.1, with the constants of msr-fiddle/pipedream 7db6a1c,
`optimizer_graph_hierarchical.py` ("pipedream"); with the paper's 2 (m - 1) W / B, taken with
computation at the same time, as "pipedream-paper". Leaves out: fill and drain, latency, and in
"pipedream" what a split divides by g. PipeDream's own program leaves that 1 out, so that a last
stage may hold any number of bytes there (`stashed_alone`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, inf, prod
from typing import NamedTuple

import numpy as np

from parsim.arrays import Array, Index
from parsim.errors import NoFeasiblePlan
from parsim.partition.levels import Level, Options, check_levels, check_work
from parsim.partition.states import States
from parsim.units import format_bytes


class PartitionStage(NamedTuple):
    """States from `first` up to but without `end`, on so many devices that replicate them."""

    first: int
    end: int
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """The best partition: seconds a micro-batch, its stages, and what it is compared with."""

    seconds: float
    stages: tuple[PartitionStage, ...]
    data_parallel: float
    one_device: float

    @property
    def replicas(self) -> tuple[int, ...]:
        """Devices of each stage: 3-1 is (3, 1)."""
        return tuple(stage.replicas for stage in self.stages)


@dataclass(frozen=True, slots=True)
class _Solved:
    """What is known of one level: seconds by units (m -> (n, n)), each split (state, units; -1)."""

    seconds: dict[int, Array]
    split: dict[int, Index]
    units: dict[int, Index]
    count: int


def partition(states: States, levels: Sequence[Level], options: Options) -> Partition:
    """Find the stages whose slowest one is fastest.

    Raises:
        InputError: a level has no device or no bandwidth, the mode is unknown, or messages would
            be compressed to more than they are, or to nothing.
        NoFeasiblePlan: no partition fits the memory, or there are fewer stages without replicas
            than devices.
    """
    check_levels(levels, options)
    check_work(len(states), levels, options)
    compute = _between(states.seconds, states)
    weights, kept = _between(states.parameters, states), _between(states.activations, states)
    solved: list[_Solved] = []
    inside = 1
    for number, level in enumerate(levels):
        rows = len(states) if number + 1 < len(levels) else 1
        work = _Work(compute, weights, kept, states, level, inside, options, rows, not number)
        solved.append(_solve(work))
        compute, inside = solved[-1].seconds[level.units], level.units
    best = float(compute[0, -1])
    if best == inf:
        raise NoFeasiblePlan(_why_none(states, levels, options))
    return Partition(
        seconds=best,
        stages=tuple(_stages(solved, len(solved) - 1, 0, len(states) - 1, 1)),
        data_parallel=_data_parallel(states, levels, options),
        one_device=float(states.seconds[-1]),
    )


def _why_none(states: States, levels: Sequence[Level], options: Options) -> str:
    """Why there is no partition: fewer stages than devices, or too little memory."""
    devices, stages = prod(level.units for level in levels), _most_stages(states)
    if options.memory is None or (options.straight and devices > stages):
        return (
            f"without replicas each of the {devices} devices has a stage of its own, but the graph "
            f"can be cut into {stages} at most; use at most {stages} devices, or leave --straight "
            f"out"
        )
    return (
        f"no partition fits {format_bytes(options.memory)} a device; the whole model has "
        f"{format_bytes(float(states.parameters[-1]))} of weights and "
        f"{format_bytes(float(states.activations[-1]))} of activations: more devices, more memory "
        f"or a smaller micro-batch may fit"
    )


def _most_stages(states: States) -> int:
    """The most stages that the layers can be cut into: states that lie behind one another."""
    chain = np.ones(len(states), dtype=np.int64)
    for state in range(len(states)):
        chain[state] += max(chain[:state][states.before[state, :state]], default=0)
    return int(chain[-1])


def _between(total: Array, states: States) -> Array:
    """What lies behind state i - 1 and in state j, (n, n); inf where i - 1 is not before j."""
    start = np.concatenate([[0.0], total[:-1]])
    allowed = np.concatenate([np.ones((1, len(total)), dtype=bool), states.before.T[:-1]])
    return np.where(allowed, total[None, :] - start[:, None], inf)


class _Work(NamedTuple):
    """One level's task: costs between states, (n, n), and how many first states it is for.

    `innermost` says that the units are devices, and not groups that share a stage's weights.
    """

    compute: Array
    weights: Array
    kept: Array
    states: States
    level: Level
    inside: int
    options: Options
    rows: int
    innermost: bool


def _solve(work: _Work) -> _Solved:
    """Fill the tables of one level, unit by unit."""
    count, straight = work.level.units, work.options.straight
    size = (work.rows, len(work.states))
    solved = _Solved({}, {}, {}, count)
    for m in range(1, count + 1):
        alone = _one_stage(work, m) if m == 1 or not straight else np.full(size, inf)
        split, units = np.full(size, -1), np.full(size, m)
        for last in range(1, 2 if straight else m):
            if m > last:
                _try_split(work, solved, m, last, alone, split, units)
        solved.seconds[m], solved.split[m], solved.units[m] = alone, split, units
    return solved


def _one_stage(work: _Work, m: int) -> Array:
    """Seconds of each part as one stage on m units, (rows, n)."""
    compute, weights = work.compute[: work.rows], work.weights[: work.rows]
    seconds = _replicated(work, compute, weights, m, work.inside)
    return _within_memory(work, seconds, work.kept[: work.rows] + weights, m, m)


def _replicated(work: _Work, compute: Array, weights: Array, m: int, inside: int) -> Array:
    """Seconds of a stage on m units that exchange their weights' gradients."""
    sent = np.where(np.isfinite(weights), weights, 0.0) * (m - 1) / work.level.bandwidth
    if work.options.mode == "pipedream-paper":
        return np.asarray(np.maximum(compute, 2.0 * sent) / m)
    return np.asarray((compute + 4.0 * sent / m / inside) / m)


def _within_memory(work: _Work, seconds: Array, kept: Array, used: int, m: int) -> Array:
    """Inf where what a stage stashes for the units still free is more than a device holds.

    A device also holds a copy for the micro-batch at hand. Of groups of devices, which share one,
    the level within has seen to that.
    """
    if work.options.memory is None:
        return seconds
    at_hand = work.innermost and not work.options.stashed_alone
    copies = ceil((work.level.units - used) / m) + int(at_hand)
    stashed = np.where(np.isfinite(kept), kept, 0.0) * copies
    return np.where(stashed > work.options.memory, inf, seconds)


def _try_split(
    work: _Work, solved: _Solved, m: int, last: int, best: Array, split: Index, units: Index
) -> None:
    """Improve parts on m units by a last stage on `last` of them, behind every state."""
    count = len(work.states)
    stage = _replicated(work, work.compute[1:], work.weights[1:], last, 1)
    stage = _within_memory(work, stage, work.kept[1:] + work.weights[1:], m, last)
    stage = np.maximum(stage, _transfers(work, last)[:-1]) if work.options.transfers else stage
    first = solved.seconds[m - last][:, : count - 1]  # (rows, k); a cut behind state k >= row
    stage = np.ascontiguousarray(stage.T)  # (j, k): the least of a row is found in one pass
    for row in range(min(work.rows, count - 1)):
        slowest = np.maximum(first[row, row:], stage[row:, row:])
        at = slowest.argmin(axis=1)
        seconds = slowest[np.arange(count - row), at]
        better = np.flatnonzero(seconds < best[row, row:])
        best[row, row + better] = seconds[better]
        split[row, row + better], units[row, row + better] = row + at[better], last


def _transfers(work: _Work, last: int) -> Array:
    """Seconds of the messages in front of and behind a last stage, (k, j)."""
    lanes = 1 if work.options.mode == "pipedream-paper" else last
    rate = work.level.bandwidth * lanes * work.options.compression
    output = 2.0 * work.states.output / rate
    behind = np.concatenate([output[:-1], [0.0]])
    return np.asarray(np.maximum(output[:, None], behind[None, :]))


def _stages(
    solved: Sequence[_Solved], level: int, first: int, last: int, copies: int
) -> Iterator[PartitionStage]:
    """The stages of states first..last on all units of a level, each on so many copies of them."""
    if level < 0:
        yield PartitionStage(first, last + 1, copies)
        return
    table, m, parts = solved[level], solved[level].count, []
    j = last
    while table.split[m][first, j] >= 0:
        k, used = int(table.split[m][first, j]), int(table.units[m][first, j])
        parts.append((k + 1, j, used))
        m, j = m - used, k
    parts.append((first, j, m))
    for begin, end, used in reversed(parts):
        yield from _stages(solved, level - 1, begin, end, used * copies)


def _data_parallel(states: States, levels: Sequence[Level], options: Options) -> float:
    """Seconds of the whole model replicated on all devices, level by level."""
    seconds, inside, weights = float(states.seconds[-1]), 1, float(states.parameters[-1])
    for level in levels:
        m = level.units
        if options.mode == "pipedream-paper":
            seconds = max(seconds, 2.0 * (m - 1) * weights / level.bandwidth) / m
        else:
            exchange = 4.0 * (m - 1) * weights / (m * level.bandwidth) / inside
            seconds = (seconds + exchange) / m
        inside = m
    return seconds
