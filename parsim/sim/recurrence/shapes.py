"""Plans of a table by the shape of their schedules: a shape is compiled and simulated at once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from parsim.plan import PlanTable


def shapes(table: PlanTable) -> Iterator[tuple[tuple[str, int, int, int], NDArray[np.int64]]]:
    """Groups of rows with equal (schedule, pp, num_microbatches, v), in a fixed order.

    Without a pipeline every schedule is the same loop over micro-batches, so pp = 1 rows are
    evaluated as 1F1B whatever they are called.
    """
    ordered = np.argsort(np.argsort(table.schedules))  # places in the alphabet
    code, names = ordered[table.schedule], sorted(table.schedules)
    numbers = np.stack([code, table.pp, table.num_microbatches, table.v], axis=1)
    distinct, back = np.unique(numbers, axis=0, return_inverse=True)
    order = np.argsort(back.reshape(-1), kind="stable")
    bounds = np.searchsorted(back.reshape(-1)[order], np.arange(len(distinct) + 1))
    for i, (name, pp, m, v) in enumerate(distinct):
        schedule = names[name] if pp > 1 else "1f1b"
        yield (schedule, int(pp), int(m), int(v)), order[bounds[i] : bounds[i + 1]]
