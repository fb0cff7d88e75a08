"""Partitions judged by a run of their step program, and improved: fill, drain, messages, versions.

PipeDream's cost model knows a stage's mean pace alone. Here each partition is the program of a
pipeline that never flushes (`strategy/weight_versions.py`): micro-batches in turn on replicas,
messages over the level of links that lies between two stages, a ring's 2 (r - 1) / r W / B over the
widest level that a stage's devices span before each of its updates, old weights kept.

    judged = seconds of N micro-batches, from the first forward to the last update, over N

The search begins with the optima of PipeDream's models and moves cuts and replicas between
neighbouring stages as long as that helps, so that it is never worse than those. A partition whose
slowest stage alone takes longer than the best so far is not run, nor one that would make all runs
together take more than some ten seconds. It proves nothing.

Leaves out: that backwards and forwards may differ otherwise than 2 to 1 (the profile's sums are
taken apart so); updates and latencies, which profiles do not have; links that stages share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf, lcm, prod
from typing import Any

import numpy as np

from parsim.errors import NoFeasiblePlan
from parsim.partition.hierarchy import Partition, PartitionStage, partition
from parsim.partition.levels import Level, Options, rate_between
from parsim.partition.states import States
from parsim.schedule.versions import Versions
from parsim.sim.program import by_recurrence, memory_curves
from parsim.sim.stages.prices import StagePrices
from parsim.strategy.weight_versions import without_flush

PARSIM = "parsim"
"""The mode in which runs judge partitions."""
BACKWARDS = 2.0
"""Times that a backward takes a forward's (assumption; profiles of layers are sums here)."""
ROUNDS = 8
"""Micro-batches for each device that are run."""
MOST_RUNS = 40
"""Partitions that are run, the first ones among them."""
MOST_WORK = 1e6
"""Forwards times devices that are run in all, some ten seconds of them: numbers of replicas without
common divisors need many turns."""

Stages = tuple[PartitionStage, ...]
Moves = Callable[[Stages, States], Iterator[Stages]]
"""Neighbours of a partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImprovedPartition:
    """The best partition by its run, and what PipeDream's optimum takes by the same measure.

    So measured is `data_parallel` too, the whole model replicated on all devices, as if it fitted.
    """

    stages: Stages
    seconds: float
    of_pipedream: float
    data_parallel: float
    microbatches: int
    runs: int

    @property
    def gain(self) -> float:
        """How many times as fast as PipeDream's optimum; inf where that does not fit."""
        return self.of_pipedream / self.seconds

    def to_json(self) -> dict[str, Any]:
        """Plain data with units in the names; null where PipeDream's optimum does not fit."""
        fits = self.of_pipedream < inf
        return {
            "seconds_per_microbatch_s": self.seconds,
            "of_pipedreams_optimum_s": self.of_pipedream if fits else None,
            "microbatches": self.microbatches,
            "partitions_run": self.runs,
        }


def improved(states: States, levels: Sequence[Level], options: Options) -> ImprovedPartition:
    """Find stages that a run takes the least time for.

    Raises:
        NoFeasiblePlan: no partition that was looked at fits the memory when all versions count.
    """
    judge = Judge(states, levels, options)
    first = partition(states, levels, replace(options, mode="pipedream")).stages
    before = judge.seconds(first)
    best, seconds = first, before
    for start in _starts(states, levels, options):
        if judge.seconds(start) < seconds:
            best, seconds = start, judge.seconds(start)
    best, seconds = climb(judge, best, _moves)
    if seconds == inf:
        raise NoFeasiblePlan(
            f"no partition that was run fits {options.memory:g} bytes a device with all versions "
            f"of its weights; more devices or more memory may fit"
        )
    return ImprovedPartition(
        stages=best,
        seconds=seconds,
        of_pipedream=before,
        data_parallel=judge.bound((PartitionStage(0, len(states), judge.devices),)),
        microbatches=ROUNDS * judge.devices,
        runs=min(len(judge.known), MOST_RUNS),
    )


def climb(judge: Judge, best: Stages, moves: Moves) -> tuple[Stages, float]:
    """Move from partition to partition as long as one takes less; the last and its seconds."""
    seconds, moved = judge.seconds(best), True
    while moved:
        moved = False
        for other in sorted(moves(best, judge.states), key=judge.bound):
            if judge.bound(other) < seconds and judge.seconds(other) < seconds:
                best, seconds, moved = other, judge.seconds(other), True
                break
    return best, seconds


def _starts(states: States, levels: Sequence[Level], options: Options) -> Iterator[Stages]:
    """Optima of the other cost models, and pure data parallelism."""
    for mode in ("pipedream", "pipedream-paper"):
        for transfers in (False, True):
            optimum: Partition = partition(
                states, levels, replace(options, mode=mode, transfers=transfers)
            )
            yield optimum.stages
    if not options.straight:
        yield (PartitionStage(0, len(states), prod(level.units for level in levels)),)


def _moves(stages: Stages, states: States) -> Iterator[Stages]:
    """Partitions with one cut a state further, or one replica more on a neighbouring stage."""
    yield from moved_cuts(stages, states)
    for number in range(len(stages) - 1):
        left, right = stages[number], stages[number + 1]
        for more, less in ((1, -1), (-1, 1)):
            counts = left.replicas + more, right.replicas + less
            if min(counts) > 0:
                pair = left._replace(replicas=counts[0]), right._replace(replicas=counts[1])
                yield (*stages[:number], *pair, *stages[number + 2 :])


def moved_cuts(stages: Stages, states: States) -> Iterator[Stages]:
    """Partitions with one cut a state or two further to either side."""
    for number in range(len(stages) - 1):
        left, right = stages[number], stages[number + 1]
        for step in (-2, -1, 1, 2):
            cut = left.end + step
            if left.first < cut < right.end and states.before[cut, cut - 1]:
                pair = left._replace(end=cut), right._replace(first=cut)
                yield (*stages[:number], *pair, *stages[number + 2 :])


class Judge:
    """Runs partitions of one graph on one hierarchy of devices, each once."""

    def __init__(
        self, states: States, levels: Sequence[Level], options: Options, *, late: bool = False
    ) -> None:
        """Note what all partitions share; with `late` replicas update a round late."""
        self.states, self.levels, self.options = states, tuple(levels), options
        self.late = late
        self.devices = prod(level.units for level in levels)
        self.known: dict[Stages, float] = {}
        self.work = 0.0

    def seconds(self, stages: Stages) -> float:
        """Seconds a micro-batch of a run; inf where versions do not fit, or too many were run."""
        if stages not in self.known:
            self.known[stages] = self._run(stages) if len(self.known) < MOST_RUNS else inf
        return self.known[stages]

    def bound(self, stages: Stages) -> float:
        """What the slowest stage takes at least, seconds a micro-batch."""
        prices = self.prices(stages)
        compute = prices.forward + prices.backward
        whole = np.maximum(compute, prices.reduce) if self.late else compute + prices.reduce
        return float(np.max(whole / np.array(prices.counts)))

    def _run(self, stages: Stages) -> float:
        if len(stages) == 1:
            return self.bound(stages) if self._fits_alone(stages[0]) else inf
        count = ROUNDS * self.devices
        turns = lcm(*(stage.replicas for stage in stages))
        few = max(count // (2 * turns), 1) * turns
        many = few + turns * max(-(-(count - few) // turns), 1)
        work = float(few + many) * len(stages) * self.devices
        if self.work + work > MOST_WORK:
            return inf
        self.work += work
        early, late = self._until_the_end(stages, few), self._until_the_end(stages, many)
        if inf in (early, late):
            return inf
        return (early + (late - early) * (count - few) / (many - few)) / count

    def _until_the_end(self, stages: Stages, count: int) -> float:
        """Seconds of so many micro-batches; inf where a device has less memory than they need."""
        prices = self.prices(stages)
        late = tuple(int(self.late and count > 1) for count in prices.counts)
        versions = Versions(rule="pipedream", pp=len(stages), counts=prices.counts, late=late)
        priced = prices.on(without_flush(versions, count))
        end = by_recurrence(priced)
        if self.options.memory is not None:
            highest = max(max(curve.bytes) for curve in memory_curves(priced, end))
            if highest > self.options.memory:
                return inf
        return float(end.updated[0])

    def _fits_alone(self, stage: PartitionStage) -> bool:
        """Whether a replica of the whole model fits: weights, a gradient, activations."""
        weights, kept = self._inside(stage, "parameters"), self._inside(stage, "activations")
        return self.options.memory is None or 2.0 * weights + kept <= self.options.memory

    def prices(self, stages: Stages) -> StagePrices:
        """Seconds and bytes of each stage of a partition."""
        seconds = np.array([self._inside(stage, "seconds") for stage in stages])
        weights = np.array([self._inside(stage, "parameters") for stage in stages])
        kept = np.array([self._inside(stage, "activations") for stage in stages])
        counts = np.array([stage.replicas for stage in stages])
        ends = np.cumsum(counts)
        rates = [
            rate_between(self.levels, end - r, end - 1) for end, r in zip(ends, counts, strict=True)
        ]
        reduce = 2.0 * (counts - 1) / counts * weights / np.array(rates)
        message = [
            float(self.states.output[stage.end - 1])
            / rate_between(self.levels, end - stage.replicas, end)
            for stage, end in zip(stages[:-1], ends[:-1], strict=True)
        ]
        return StagePrices(
            forward=seconds / (1.0 + BACKWARDS),
            backward=seconds * BACKWARDS / (1.0 + BACKWARDS),
            update=np.zeros(len(stages)),
            message=np.array(message) / self.options.compression,
            reduce=reduce,
            weights=weights,
            activations=kept,
            gradients=weights,
            static=2.0 * weights,
            counts=tuple(int(count) for count in counts),
        )

    def _inside(self, stage: PartitionStage, name: str) -> float:
        """The sum of a stage's layers."""
        total = getattr(self.states, name)
        return float(total[stage.end - 1] - (total[stage.first - 1] if stage.first else 0.0))
