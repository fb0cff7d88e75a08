"""When a queue has served those of a task that pass it, where all come in one round.

They are served in order of arrival a, each for s seconds, so that the k-th leaves at

    d_k = max(d_{k-1}, a_k) + s_k = C_k + max_{j <= k} (a_j - C_{j-1}),    C_k = s_1 + ... + s_k

Source: Lindley's recurrence.
"""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array
from parsim.strategy.program import Queue, Task


def served(task: Task, queue: Queue, price: Array, ready: Array) -> Array:
    """When a queue has served each rank of a task that is ready then, (ranks, ...)."""
    seconds = np.broadcast_to(task.rows(price), ready.shape)
    end = np.array(ready)
    for rows in queue.places(len(task.ranks)).values():
        end[rows] = _left(ready[rows], seconds[rows])
    return end


def _left(arrived: Array, service: Array) -> Array:
    """When each of those that share a row leaves it, (those, ...)."""
    order = np.argsort(arrived, axis=0, kind="stable")
    came = np.take_along_axis(arrived, order, axis=0)
    lasts = np.take_along_axis(service, order, axis=0)
    done = np.cumsum(lasts, axis=0)
    left = done + np.maximum.accumulate(came - (done - lasts), axis=0)
    back = np.empty_like(left)
    np.put_along_axis(back, order, left, axis=0)
    return back
