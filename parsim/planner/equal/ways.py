"""The longest ways through a schedule: a bound of its end for all plans that have it.

    rank 0 | F F . . . B . B        way  F F     of 4 forwards and 3 backwards: no plan with this
    rank 1 | . F F B . B .                 F B B  schedule ends before 4 F + 3 B
                                                B

A way goes from action to action that waits for it, on one rank or by a message. Which way is the
longest depends on how long a backward is beside a forward, so that there is one for each of some
ratios. Every way is one of any plan with the schedule: whatever the ratio, none ends earlier.

Leaves out: messages, and stages that take longer than their share of layers.
"""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array, sorted_values
from parsim.schedule import Kind
from parsim.sim.recurrence.maxplus import ClassTimes, run
from parsim.sim.step.compiled_schedule import KINDS, CompiledSchedule

RATIOS = (1.0, 2.0, 2.5, 3.0, 4.0)
"""Backward over forward: alone, as usual, with some and with all layers recomputed, and more."""


def longest_ways(compiled: CompiledSchedule, layers: tuple[int, ...]) -> Array:
    """(forwards, backwards) of layers along the longest way of each ratio, (T, 2).

    `layers` are those of each stage of one copy of the model. A schedule with backwards in two has
    none: what its parts take is not known without their prices.
    """
    kinds = compiled.duration_class % KINDS
    if compiled.repeats > 1 or not np.isin(kinds, (Kind.F, Kind.B)).all():
        return np.zeros((0, 2))
    stages = compiled.schedule.in_copies(np.array(layers, dtype=np.float64)[:, None])
    ratios = np.array(RATIOS)
    seconds = {Kind.F: stages + 0.0 * ratios, Kind.B: stages * ratios}
    times = ClassTimes.on(compiled.schedule, seconds, np.zeros((len(stages) - 1, len(ratios))))
    finish = run(compiled, times, keep=True).finish
    if finish is None:
        raise RuntimeError("the recurrence kept no finish times")
    ways = [_way(compiled, ends) for ends in finish.T]
    of_stage = stages[:, 0][compiled.duration_class // KINDS]
    each = [of_stage * (kinds == kind) for kind in (Kind.F, Kind.B)]
    return sorted_values([[float(counts[way].sum()) for counts in each] for way in ways], axis=0)


def _way(compiled: CompiledSchedule, finish: Array) -> list[int]:
    """Positions of the actions of a longest way that ends last."""
    ends = np.concatenate([[-1.0], finish]).tolist()
    before, source = compiled.before.tolist(), compiled.source.tolist()
    at = 1 + int(np.argmax(finish))
    way = []
    while at:
        way.append(at - 1)
        first, second = before[at - 1], source[at - 1]
        at = first if ends[first] >= ends[second] else second
    return way
