"""The best cut for stages whose replicas are given: `7-1`, and which layers each should have."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from parsim.arrays import Array, Index
from parsim.errors import NoFeasiblePlan
from parsim.partition.hierarchy import Level, Options, Stage
from parsim.partition.simulated import Judge, Stages, climb, moved_cuts
from parsim.partition.states import States


def cut_for(states: States, levels: Sequence[Level], replicas: Sequence[int]) -> Stages:
    """The stages with these replicas whose slowest one is fastest, in front of it the message.

    (C + 2 (r - 1) / r W / B) / r of a stage, 2 O / B / min(r, r') of the messages at a border,
    forward and back; every cut of a chain is tried, by dynamic programming over its states. From
    there cuts move as long as a run takes less time, which knows how long messages keep a
    pipeline waiting that has few micro-batches on their way.

    Raises:
        NoFeasiblePlan: there are fewer layers than stages.
    """
    count = len(states)
    if count < len(replicas):
        raise NoFeasiblePlan(f"{len(replicas)} stages need as many layers, but there are {count}")
    judge = Judge(states, levels, Options())
    return climb(judge, fastest_by_formula(judge, replicas), moved_cuts)[0]


def fastest_by_formula(judge: Judge, replicas: Sequence[int]) -> Stages:
    """The optimum by the formula of `cut_for`."""
    count = len(judge.states)
    best = np.full(count + 1, np.inf)  # of all stages so far, by the state behind them
    best[0] = 0.0
    cuts: list[Index] = []
    for number in range(len(replicas)):
        slowest = np.maximum(best[:, None], _stage(judge, replicas, number))
        cuts.append(slowest.argmin(axis=0))
        best = slowest.min(axis=0)
    ends = [count]
    for cut in reversed(cuts[1:]):
        ends.append(int(cut[ends[-1]]))
    bounds = [0, *reversed(ends)]
    pairs = zip(bounds, bounds[1:], replicas, strict=False)
    return tuple(Stage(first, end, each) for first, end, each in pairs)


def _stage(judge: Judge, replicas: Sequence[int], number: int) -> Array:
    """Seconds of stage `number` over states first up to end, (first, end); inf if it is empty."""
    count, each = len(judge.states), replicas[number]
    before = sum(replicas[:number])
    total = np.concatenate([[0.0], judge.states.seconds])
    weights = np.concatenate([[0.0], judge.states.parameters])
    rate = judge.rate(before, before + each - 1)
    sent = 2.0 * (each - 1) / each * (weights[None, :] - weights[:, None]) / rate
    seconds = (total[None, :] - total[:, None] + sent) / each
    if number:
        lanes = min(each, replicas[number - 1])
        message = (
            2.0 * judge.states.output / judge.rate(before - replicas[number - 1], before) / lanes
        )
        seconds = np.maximum(seconds, np.concatenate([[0.0], message])[:, None])
    first, end = np.indices((count + 1, count + 1))
    return np.where(first < end, seconds, np.inf)
