"""The end of a step whose workers hold a model together: norm of it all, update of each part."""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array
from parsim.cost.collective.collectives import collective_time
from parsim.cost.collective.group_bandwidth import one_group
from parsim.sim.recurrence.evaluate import Evaluation

NORM_BYTES = 4.0
"""Bytes of the sum of squares that workers add up for the norm of the whole gradient: fp32."""


def added_squares(evaluation: Evaluation, workers: int) -> Array:
    """Seconds in which so many workers add up the squares of their parts of a gradient, (1,)."""
    system = evaluation.step.job.system
    everybody = one_group(system, workers)
    return np.asarray(collective_time(system, "all_reduce", NORM_BYTES, everybody))


def shared_update(evaluation: Evaluation, shares: Array) -> Array:
    """Seconds of an update of these shares of the parameters: its fixed part is everybody's."""
    fixed = evaluation.step.job.update_overhead
    moved = max(float(evaluation.step.costs.optimizer[0, 0]) - fixed, 0.0)
    return np.asarray(fixed + moved * shares)
