"""Repeats an asynchronous training in one process, step by step, in the order that was logged."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from executor.strategies.log import Applied, Batches
from executor.strategies.replica import FlatOptimizer, Recipe, Replica


def replay(
    replica: Replica,
    applied: Sequence[Applied],
    batches: Batches,
    recipe: Recipe,
    microbatches: int = 1,
) -> Tensor:
    """The weights after applying each gradient, of the version that its worker had, in order."""
    server = FlatOptimizer(replica.weights, recipe)
    versions = {0: server.weights}
    last_use = {entry.version: number for number, entry in enumerate(applied)}
    for number, entry in enumerate(applied):
        replica.load(versions[entry.version])
        batch = batches(entry.worker, entry.round)
        server.apply(replica.gradient(batch, microbatches)[1])
        versions[number + 1] = server.weights
        for version in [v for v in versions if last_use.get(v, number) <= number and v <= number]:
            del versions[version]
    return server.weights


def ages(applied: Sequence[Applied]) -> list[int]:
    """Updates between each worker's copy of the weights and its own update."""
    return [number - entry.version for number, entry in enumerate(applied)]
