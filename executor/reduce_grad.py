"""Data parallelism for pipeline stages: a stage's buckets are sent at its REDUCE_GRAD.

They travel beside the rest of the schedule and are waited for at the end of the step. Unlike
DistributedDataParallel this needs no autograd hooks, so it is right with split backwards too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from executor.parallel.buckets import GradientBuckets


class ActionLike(Protocol):
    """What is used of torch's actions here."""

    stage_index: int


class GradReducer:
    """Starts the reduction of each stage's gradients; `GradientBuckets.finish` waits for it."""

    def __init__(self, buckets: Mapping[int, GradientBuckets]) -> None:
        self._buckets = buckets

    def launch(self, action: ActionLike, context: object) -> None:
        """Send one stage's buckets; has the form of the runtime's custom functions."""
        del context
        self._buckets[action.stage_index].send()
