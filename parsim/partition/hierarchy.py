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
from math import inf, prod
from typing import NamedTuple

import numpy as np

from parsim.arrays import Array
from parsim.errors import NoFeasiblePlan
from parsim.partition.level_tables import LevelTables, LevelWork, solve_level
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
    solved = _solve(states, levels, options)
    best = float(solved[-1].seconds[levels[-1].units][0, -1])
    if best == inf:
        raise NoFeasiblePlan(_why_none(states, levels, options))
    return Partition(
        seconds=best,
        stages=tuple(_stages(solved, len(solved) - 1, 0, len(states) - 1, 1)),
        data_parallel=_data_parallel(states, levels, options),
        one_device=float(states.seconds[-1]),
    )


def _solve(states: States, levels: Sequence[Level], options: Options) -> list[LevelTables]:
    """The tables of each level, whose layers are the best parts of the level within."""
    compute = _between(states.seconds, states)
    weights, kept = _between(states.parameters, states), _between(states.activations, states)
    solved: list[LevelTables] = []
    inside = 1
    for number, level in enumerate(levels):
        rows = len(states) if number + 1 < len(levels) else 1
        work = LevelWork(compute, weights, kept, states, level, inside, options, rows, not number)
        solved.append(solve_level(work))
        compute, inside = solved[-1].seconds[level.units], level.units
    return solved


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


def _stages(
    solved: Sequence[LevelTables], level: int, first: int, last: int, copies: int
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
