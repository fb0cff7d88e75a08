"""Hiccups: pauses of single members of a group, within one of their actions."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from parsim.arrays import Array, Index
from parsim.cost.jitter import Jitter
from parsim.sim.lateness.pipelines import RankGrid, Seconds
from parsim.sim.step.compiled_schedule import CompiledSchedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Stops:
    """Hiccups within one action: which member of which column, and how long."""

    member: Index
    column: Index
    seconds: Array


def add_stops(added: Array, stops: Stops, seconds: Seconds, factors: Array) -> None:
    """Let members that stopped, of so many factors (ln), be the slowest where they are."""
    if isinstance(seconds, np.ndarray):
        seconds = seconds[stops.column // added.shape[1], 0]
    stopped = seconds * np.expm1(factors) + stops.seconds
    np.maximum.at(added.reshape(-1), stops.column, stopped)


def draw_hiccups(
    compiled: CompiledSchedule,
    ranks: RankGrid,
    jitter: Jitter,
    shape: tuple[int, int],
    rng: np.random.Generator,
) -> dict[int, Stops]:
    """Poisson many a rank and step, each within one of the rank's actions; by action."""
    stops: dict[int, Stops] = {}
    columns = shape[0] * shape[1]
    if "hiccups" not in jitter.active:
        return stops
    for row in range(ranks.pp):
        count = rng.poisson(jitter.hiccups * columns * ranks.members)
        on_rank = np.flatnonzero(compiled.rank == row)
        actions = on_rank[rng.integers(len(on_rank), size=count)]
        members = rng.integers(ranks.members, size=count)
        hit = np.stack([actions, members, rng.integers(columns, size=count)])  # a row each
        hit, times = np.unique(hit, axis=1, return_counts=True)
        bounds = np.flatnonzero(np.diff(hit[0], prepend=-1, append=-1))
        for low, high in pairwise(bounds.tolist()):
            stops[int(hit[0, low])] = Stops(
                member=hit[1, low:high],
                column=hit[2, low:high],
                seconds=np.float64(jitter.hiccup_length) * times[low:high],
            )
    return stops
