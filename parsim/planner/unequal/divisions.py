"""Divisions of the devices into stages: what replicas and tensor-parallel ranks each has.

    4 devices, 2 micro-batches, tp 1 or 2     2 - 1 x tp2     1 x tp2 - 2     1 - 1 - 1 x tp2 ...

Every stage takes micro-batches in turn, so that its replicas divide their number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

MOST_STAGES = 8
MOST_LISTED = 5000
"""Divisions that are listed of each micro-batch and set of degrees, those of few stages first."""
MOST_DIVISIONS = 1000
"""The first of the listed ones that may fit are looked at, so many of them."""


class StageDegrees(NamedTuple):
    """A stage's replicas and the tensor-parallel ranks of each."""

    replicas: int
    tp: int

    @property
    def devices(self) -> int:
        """All devices of the stage."""
        return self.replicas * self.tp


Division = tuple[StageDegrees, ...]


class Divisions(NamedTuple):
    """Divisions to look at; how many were too few ranks for the model; whether these are all."""

    some: list[Division]
    unfit: int
    whole: bool


def divisions(
    devices: int,
    replicas: Sequence[int],
    degrees: Sequence[int],
    most_stages: int,
    fewest_ranks: float = 0.0,
) -> Divisions:
    """Divisions with some replicas and degrees, few stages first.

    Those of several degrees have at least two of them: the others are of one alone. One replica of
    each stage together must have the fewest ranks that hold the model.
    """
    every = _divisions(devices, replicas, degrees, min(most_stages, MOST_STAGES))
    listed = list(islice(every, MOST_LISTED))
    fit = [each for each in listed if sum(part.tp for part in each) >= fewest_ranks]
    whole = len(fit) <= MOST_DIVISIONS and next(every, None) is None
    return Divisions(fit[:MOST_DIVISIONS], len(listed) - len(fit), whole)


def _divisions(
    devices: int, replicas: Sequence[int], degrees: Sequence[int], most: int
) -> Iterator[Division]:
    parts = sorted(
        (StageDegrees(each, tp) for each in replicas for tp in degrees), key=_largest_first
    )
    for stages in range(2, most + 1):
        for division in _sums(devices, stages, parts):
            if len({part.tp for part in division}) > 1 or len(degrees) == 1:
                yield division


def _largest_first(part: StageDegrees) -> tuple[int, int]:
    return -part.devices, part.tp


def _sums(devices: int, stages: int, parts: Sequence[StageDegrees]) -> Iterator[Division]:
    """Ordered sums of so many parts."""
    if not stages * parts[-1].devices <= devices <= stages * parts[0].devices:
        return
    if stages == 0:
        yield ()
        return
    for part in parts:
        yield from ((part, *rest) for rest in _sums(devices - part.devices, stages - 1, parts))
