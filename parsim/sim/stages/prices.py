"""Seconds and bytes of the stages of a pipeline whose actions are tasks, and its steady pace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import lcm

import numpy as np

from parsim.arrays import Array
from parsim.schedule import Kind
from parsim.schedule.versions import Versions
from parsim.sim.program import PricedProgram, by_recurrence
from parsim.sim.recurrence.walk import StepEnd
from parsim.strategy import StepProgram
from parsim.strategy.stage_tasks import (
    ACTIVATIONS,
    BACKWARD,
    FORWARD,
    MESSAGE,
    MESSAGE_BACK,
    task_name,
)
from parsim.strategy.weight_versions import (
    GRADIENTS,
    REDUCE,
    STATIC,
    STATIC_ALONE,
    UPDATE,
    WEIGHTS,
    without_flush,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePrices:
    """Seconds and bytes of each of p stages, (p,).

    `message` are seconds of a message behind each stage but the last, (p - 1,), or one number, and
    `message_back` those of the gradients that come back (None: the same).
    `reduce` is what the reduction of a stage's gradients adds, 0 with one replica. `weights` are
    the bytes of one version, `activations` those of one micro-batch, and `static` what a replica
    holds besides: its newest weights, `gradients`, optimizer states, buffers. `counts` are the
    replicas (none: one each). `tail` are prices of what a step ends with, by name, a row a rank.
    """

    forward: Array
    backward: Array
    update: Array
    message: Array | float
    message_back: Array | float | None = None
    weights: Array
    activations: Array
    static: Array
    gradients: Array | float = 0.0
    reduce: Array | float = 0.0
    counts: tuple[int, ...] = ()
    tail: Mapping[str, Array] = field(default_factory=dict)

    @property
    def stages(self) -> int:
        """How many stages there are, p."""
        return len(self.forward)

    def by_rank(self, stages: Array) -> Array:
        """A number of each rank from those of stages."""
        return np.repeat(stages, self.counts or (1,) * self.stages)

    def on(self, program: StepProgram) -> PricedProgram:
        """A program with these prices."""
        ones = np.ones(self.stages)
        back = self.message if self.message_back is None else self.message_back
        return PricedProgram(
            program=program,
            seconds={
                FORWARD: self.forward,
                BACKWARD: self.backward,
                UPDATE: self.update,
                REDUCE: self.reduce * ones,
                MESSAGE: self.message * ones[1:],
                MESSAGE_BACK: back * ones[1:],
                **self.tail,
            },
            sizes={
                WEIGHTS: self.by_rank(self.weights),
                ACTIVATIONS: self.by_rank(self.activations),
                GRADIENTS: self.by_rank(self.gradients * ones),
                STATIC: self.by_rank(self.static),
                STATIC_ALONE: self.by_rank(self.static - self.gradients),
            },
        )


def steady_state(versions: Versions, prices: StagePrices) -> float:
    """Time between two micro-batches, mean over the batches of an update, seconds.

    Without messages and with enough forwards at the start it is max over stages of
    (F + B + reduce + update / batch) / replicas, the reduction beside the others where it is late.
    """
    pp, whole = versions.pp, lcm(versions.batch, *versions.replicas.counts)
    batches = -(-4 * max(pp, versions.replicas.num_ranks) // whole)  # by then all wait for the last
    early, late = batches * whole, 2 * batches * whole
    pairs = zip(versions.replicas.counts, versions.warmups, strict=True)
    drain = max(count * (begun + 1) for count, begun in pairs)
    more = -(-max(2 * pp, drain) // whole) * whole  # which `late` is not among
    end = by_recurrence(prices.on(without_flush(versions, late + more)))
    return (_first_stage(end, late) - _first_stage(end, early)) / (late - early)


def _first_stage(end: StepEnd, microbatch: int) -> float:
    """When the first stage ends a micro-batch's backward."""
    return float(end.times[task_name(0, Kind.B, microbatch)].end[0, 0])
