"""When the ranks of an evaluated plan begin and end."""

from __future__ import annotations

import numpy as np

from parsim.sim.evaluate import Evaluation
from parsim.sim.maxplus import ClassTimes
from parsim.sim.utilisation import SimulatorError


def device_span(found: Evaluation) -> float:
    """Longest time that one rank spends between its first and last action, seconds.

    Shorter than the makespan where ranks start late: zero-bubble schedules are zero per span.
    """
    if found.run.finish is None:
        return float(found.pipeline_time[0])
    graph, costs = found.graph, found.costs
    times = ClassTimes.of(graph, costs)
    durations = (times.blocking() if costs.blocking_p2p else times).duration
    spans = []
    number = 0
    for row in graph.schedule.ranks:
        first = int(graph.position[number])
        duration = float(durations[graph.duration_class[first], 0])
        ends = found.run.finish[graph.position[number : number + len(row)], 0]
        spans.append(float(ends.max()) - float(found.run.finish[first, 0]) + duration)
        number += len(row)
    return max(spans)


def first_starts(found: Evaluation) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """When each rank's first action starts, seconds, (p,); `found` keeps its finish times."""
    if found.run.finish is None:
        raise SimulatorError("the finish times were not kept")
    times = ClassTimes.of(found.graph, found.costs)
    durations = (times.blocking() if found.costs.blocking_p2p else times).duration
    lengths = [len(row) for row in found.graph.schedule.ranks]
    first = found.graph.position[np.cumsum([0, *lengths[:-1]])]
    return np.asarray(found.run.finish[first, 0] - durations[found.graph.duration_class[first], 0])
