"""Partitions improved by runs of their step programs, which PipeDream's cost model does not know.

That knows a stage's mean pace alone; a run has fill, drain, messages and versions of weights
(`parsim/partition/judge.py`). The search begins with the optima of PipeDream's models and moves
cuts and replicas between neighbouring stages as long as that helps, so that it is never worse than
those. A partition whose slowest stage alone takes longer than the best so far is not run, nor one
that would make all runs together take more than some ten seconds. It proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf, prod
from typing import Any

from parsim.errors import NoFeasiblePlan
from parsim.partition.hierarchy import Partition, PartitionStage, partition
from parsim.partition.judge import MOST_RUNS, ROUNDS, Judge, Stages
from parsim.partition.levels import Level, Options
from parsim.partition.states import States

PARSIM = "parsim"
"""The mode in which runs judge partitions."""

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
    best, seconds = climb(judge, best, moved_cuts if options.straight else _moves)
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
    """Partitions with a cut moved, a stage less, or one replica more on a neighbouring stage."""
    yield from moved_cuts(stages, states)
    yield from _merged(stages)
    for number in range(len(stages) - 1):
        left, right = stages[number], stages[number + 1]
        for more, less in ((1, -1), (-1, 1)):
            counts = left.replicas + more, right.replicas + less
            if min(counts) > 0:
                pair = left._replace(replicas=counts[0]), right._replace(replicas=counts[1])
                yield (*stages[:number], *pair, *stages[number + 2 :])


def _merged(stages: Stages) -> Iterator[Stages]:
    """Partitions with two neighbours in one, which keeps all replicas or gives some to a third."""
    for number in range(len(stages) - 1):
        left, right = stages[number], stages[number + 1]
        both = left.replicas + right.replicas
        around = stages[:number], stages[number + 2 :]
        for kept in (both, *{left.replicas, right.replicas}):
            merged = PartitionStage(left.first, right.end, kept)
            for third in _with_more(around, both - kept):
                yield (*third[0], merged, *third[1])


def _with_more(around: tuple[Stages, Stages], more: int) -> Iterator[tuple[Stages, Stages]]:
    """The stages before and behind one, the nearest on either side with so many replicas more."""
    before, behind = around
    if not more:
        yield around
        return
    if before:
        last = before[-1]._replace(replicas=before[-1].replicas + more)
        yield (*before[:-1], last), behind
    if behind:
        first = behind[0]._replace(replicas=behind[0].replicas + more)
        yield before, (first, *behind[1:])


def moved_cuts(stages: Stages, states: States) -> Iterator[Stages]:
    """Partitions with one cut a state or two further to either side."""
    for number in range(len(stages) - 1):
        left, right = stages[number], stages[number + 1]
        for step in (-2, -1, 1, 2):
            cut = left.end + step
            if left.first < cut < right.end and states.before[cut, cut - 1]:
                pair = left._replace(end=cut), right._replace(first=cut)
                yield (*stages[:number], *pair, *stages[number + 2 :])
