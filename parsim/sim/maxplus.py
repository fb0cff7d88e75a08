"""Tier B: finish times of a static schedule by the max-plus recurrence, many plans at once.

    start[i]  = max(finish[previous on the rank], arrival[input of i])
    finish[i] = start[i] + duration[i];   arrival[i] = finish[i] + hop[i]

A blocking send keeps the sender's compute stream: then the hop belongs to the duration and the
message arrives when the send ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from parsim.cost.step import StepCosts
from parsim.schedule import Kind
from parsim.sim.graph import KINDS, Graph

Array = NDArray[np.float64]

TABLE_ELEMENTS = 4_000_000
"""Largest finish table (actions x plans) held at once: 32 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassTimes:
    """Durations and hops per class (stage x kind), shape (C, B)."""

    duration: Array
    hop: Array

    @classmethod
    def of(cls, graph: Graph, costs: StepCosts) -> ClassTimes:
        """Spread the costs of a plan's stages over the schedule's duration classes.

        Forward sends to the next stage, backward to the one before; nothing is sent to a stage on
        the same rank.
        """
        stages, plans = costs.forward.shape
        duration = np.zeros((stages * KINDS, plans))
        hop = np.zeros_like(duration)
        duration[Kind.F :: KINDS] = costs.forward
        duration[Kind.B :: KINDS] = costs.backward
        rank = np.array(graph.schedule.stage_rank)
        moves = (rank[1:] != rank[:-1])[:, None]
        between = np.where(moves, costs.hop[:-1], 0.0)
        hop[Kind.F : (stages - 1) * KINDS : KINDS] = between
        hop[KINDS + Kind.B :: KINDS] = between
        return cls(duration=duration, hop=hop)

    def blocking(self) -> ClassTimes:
        """The same with sends on the compute stream."""
        return ClassTimes(duration=self.duration + self.hop, hop=np.zeros_like(self.hop))


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What tier B found, seconds.

    `clock` (p, B) is the end of each rank's last action, `last_end` (S, B) the end of the action
    that completes each stage's gradients, `finish` (A, B) the end of every action in the graph's
    order where it was asked for.
    """

    clock: Array
    last_end: Array
    finish: Array | None


def run(graph: Graph, times: ClassTimes, *, keep: bool = False) -> Run:
    """Evaluate B plans of one shape.

    Plans are taken in blocks so that the table of finish times stays small.
    """
    plans = times.duration.shape[1]
    block = max(1, min(plans, TABLE_ELEMENTS // (graph.num_actions + 1)))
    parts = [
        _block(graph, times.duration[:, i : i + block], times.hop[:, i : i + block], keep)
        for i in range(0, plans, block)
    ]
    return Run(
        clock=np.concatenate([part.clock for part in parts], axis=1),
        last_end=np.concatenate([part.last_end for part in parts], axis=1),
        finish=np.concatenate([p.finish for p in parts if p.finish is not None], axis=1)
        if keep
        else None,
    )


def _block(graph: Graph, duration: Array, hop: Array, keep: bool) -> Run:
    plans = duration.shape[1]
    finish = np.empty((graph.num_actions, plans))
    arrival = np.empty((graph.num_actions + 1, plans))
    arrival[0] = 0.0
    clock = np.zeros((graph.schedule.pp, plans))
    rank, source, kind = graph.rank, graph.source, graph.duration_class
    bounds = graph.bounds.tolist()
    for low, high in pairwise(bounds):
        who = rank[low:high]
        what = kind[low:high]
        time = np.maximum(clock[who], arrival[source[low:high]])
        time += duration[what]
        clock[who] = time
        finish[low:high] = time
        time += hop[what]
        arrival[low + 1 : high + 1] = time
    last = finish[graph.last_backward]
    return Run(clock=clock, last_end=last, finish=finish if keep else None)
