"""Queues of one round, which serve ranks in order of arrival: when each has been served.

They are served in order of arrival a, each for s seconds, so that the k-th leaves at

    d_k = max(d_{k-1}, a_k) + s_k = C_k + max_{j <= k} (a_j - C_{j-1}),    C_k = s_1 + ... + s_k

Pieces of a message pass the same queues of many ranks, so that who passes which is looked up once.

Source: Lindley's recurrence.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from parsim.arrays import Array, Index
from parsim.strategy.task import Queue, Task


def served(task: Task, queue: Queue, price: Array, ready: Array) -> Array:
    """When a queue has served each rank of a task that is ready then, (ranks, ...)."""
    seconds = np.broadcast_to(task.rows(price), ready.shape)
    end = np.array(ready)
    for rows in passing(queue, len(task.ranks)).values():
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


def passing(queue: Queue, count: int) -> Mapping[str, slice | Index]:
    """The positions of a task's so many ranks that each of a queue's names serves."""
    if len(queue.rows) == 1:
        return {name: slice(count) for name in queue.rows if name}
    return _passing(queue.rows)


@lru_cache(maxsize=4096)
def _passing(rows: tuple[str, ...]) -> Mapping[str, Index]:
    """The positions of each name, in order."""
    served: dict[str, list[int]] = {}
    for position, name in enumerate(rows):
        if name:
            served.setdefault(name, []).append(position)
    return {name: np.array(places) for name, places in served.items()}
