"""Who runs what in a Monte Carlo of steps: ranks with their speeds, replicas by their prices.

    equal nodes and batches      one part, one class: one column of prices for all replicas
    nodes of two kinds           one part, two classes: a column for each replica
    uneven batches               a part for each number of micro-batches, with actions of its own

Groups of equal nodes count as one kind, so that their steps are those of one kind to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from parsim.arrays import Array, Flags, Index
from parsim.cost.jitter import Jitter
from parsim.cost.job import Job
from parsim.cost.step.costs import StepCosts
from parsim.plan import Plan
from parsim.sim.recurrence.evaluate import evaluate
from parsim.sim.step.compiled_schedule import CompiledSchedule
from parsim.sim.step.priced_step import program_of
from parsim.strategy import StepProgram

Seconds = float | Array
"""Length of an action: one for all replicas, or (replicas, 1) where they differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlikeReplicas:
    """Replicas that run the same actions.

    `replicas` (n,) are which of the plan's they are, `class_of` (n,) the class of each. `costs`
    have a column for each of them, or one where they are of one class.
    """

    compiled: CompiledSchedule
    costs: StepCosts
    replicas: Index
    class_of: Index

    def replicas_of_class(self, number: int) -> Index:
        """Positions of a class among this part's replicas."""
        return np.flatnonzero(self.class_of == number)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPipelines:
    """All replicas of a plan; `sharers` (C, C) says which classes share parameters."""

    parts: tuple[AlikeReplicas, ...]
    sharers: Flags

    @classmethod
    def alike(cls, compiled: CompiledSchedule, costs: StepCosts, replicas: int) -> ReplicaPipelines:
        """So many replicas with equal actions and prices (of one plan)."""
        class_of = np.zeros(replicas, dtype=np.int64)
        parts = tuple(_parts([compiled], costs, class_of))
        return cls(parts=parts, sharers=np.ones((1, 1), dtype=bool))

    @property
    def costs(self) -> StepCosts:
        """What all replicas do at once is priced alike in every part."""
        return self.parts[0].costs

    @property
    def program(self) -> StepProgram:
        """What ranks do behind their pipelines."""
        return program_of([part.compiled.schedule for part in self.parts], self.costs)


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedPlan:
    """A plan's replicas, and their step without jitter and straggler allowance, seconds."""

    pipelines: ReplicaPipelines
    updated: float
    straggler: float


def priced_plan(job: Job, plan: Plan) -> PricedPlan:
    """Price a plan on a cluster of one kind of node or of several."""
    evaluation = evaluate(job, plan, by_kind=True, memory=False)
    step = evaluation.step
    parts = _parts(step.compiled, step.costs, step.classes.class_of)
    return PricedPlan(
        pipelines=ReplicaPipelines(parts=tuple(parts), sharers=step.classes.sharers),
        updated=evaluation.updated,
        straggler=float(step.costs.straggler[0]),
    )


def _parts(
    by_class: Sequence[CompiledSchedule], costs: StepCosts, class_of: Index
) -> list[AlikeReplicas]:
    """Replicas by the schedule of their class, in the order of the first classes."""
    parts = []
    for compiled in {id(compiled): compiled for compiled in by_class}.values():
        alike = [number for number, other in enumerate(by_class) if other is compiled]
        replicas = np.flatnonzero(np.isin(class_of, alike))
        columns = class_of[replicas] if len(alike) > 1 else np.array(alike)
        parts.append(
            AlikeReplicas(
                compiled=compiled,
                costs=costs.take(columns),
                replicas=replicas,
                class_of=class_of[replicas],
            )
        )
    return parts


SPEED, NOISE, HICCUPS, TIES = range(4)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankGrid:
    """A plan's ranks as an array: `groups` (dp) replicas, each of `members` (tp x cp), `pp` times.

    `slow` lists (pipeline rank, replica, member, factor). `meet_forward` and `meet_backward` are
    how many neighbouring replicas exchange shards within every forward and every backward.
    """

    pp: int
    groups: int
    members: int
    slow: tuple[tuple[int, int, int, float], ...] = ()
    meet_forward: int = 1
    meet_backward: int = 1

    @property
    def world_size(self) -> int:
        """How many ranks there are in all."""
        return self.pp * self.groups * self.members

    def differ(self, jitter: Jitter) -> frozenset[int]:
        """Pipeline ranks whose members are not alike, and so must be drawn one by one."""
        if jitter.speed_spread > 0:
            return frozenset(range(self.pp))
        return frozenset(row for row, *_ in self.slow) if jitter.slow_ranks else frozenset()


def stream(seed: int, source: int, number: int, part: int = 0) -> np.random.Generator:
    """The numbers of one source for one block (or cluster), whatever else is drawn.

    Replicas with actions of their own are a part of the block and have numbers of their own.
    """
    words = [seed, source, number, part] if part else [seed, source, number]
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(words)))


def speeds(ranks: RankGrid, jitter: Jitter, seed: int, cluster: int) -> Array:
    """Logarithm of each rank's factor on one cluster, (pp, members, groups)."""
    shape = (ranks.pp, ranks.members, ranks.groups)
    drawn = stream(seed, SPEED, cluster).standard_normal(shape) * jitter.speed_spread
    if jitter.slow_ranks:
        for row, group, member, factor in ranks.slow:
            drawn[row, member, group] += np.log(factor)
    return drawn


class ReplicaSubset(NamedTuple):
    """Replicas that run a schedule of their own: its number, and which they are."""

    part: int
    replicas: Index
