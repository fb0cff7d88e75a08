"""Runs a partition's step program to say how long it takes: fill, drain, messages, versions.

Each partition is the program of a pipeline that never flushes (`strategy/weight_versions.py`):
micro-batches in turn on replicas, messages over the level of links that lies between two stages, a
ring's 2 (r - 1) / r W / B over the widest level that a stage's devices span before each of its
updates, old weights kept.

    judged = seconds of N micro-batches, from the first forward to the last update, over N

Leaves out: that backwards and forwards may differ otherwise than 2 to 1 (the profile's sums are
taken apart so); updates and latencies, which profiles do not have; links that stages share.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, lcm, prod

import numpy as np

from parsim.arrays import Array
from parsim.partition.hierarchy import PartitionStage
from parsim.partition.levels import Level, Options, rate_between
from parsim.partition.states import States
from parsim.schedule.versions import Versions
from parsim.sim.program import by_recurrence, memory_curves
from parsim.sim.stages.prices import StagePrices
from parsim.strategy.weight_versions import without_flush

BACKWARDS = 2.0
"""Times that a backward takes a forward's (assumption; profiles of layers are sums here)."""
ROUNDS = 8
"""Micro-batches for each device that are run."""
MOST_RUNS = 40
"""Partitions that are run, the first ones among them."""
MOST_WORK = 1e6
"""Forwards times devices that are run in all, some ten seconds of them: numbers of replicas without
common divisors need many turns."""

Stages = tuple[PartitionStage, ...]


class Judge:
    """Runs partitions of one graph on one hierarchy of devices, each once."""

    def __init__(
        self, states: States, levels: Sequence[Level], options: Options, *, late: bool = False
    ) -> None:
        """Note what all partitions share; with `late` replicas update a round late."""
        self.states, self.levels, self.options = states, tuple(levels), options
        self.late = late
        self.devices = prod(level.units for level in levels)
        self.known: dict[Stages, float] = {}
        self.work = 0.0

    def seconds(self, stages: Stages) -> float:
        """Seconds a micro-batch of a run; inf where versions do not fit, or too many were run."""
        if stages not in self.known:
            self.known[stages] = self._run(stages) if len(self.known) < MOST_RUNS else inf
        return self.known[stages]

    def bound(self, stages: Stages) -> float:
        """What the slowest stage takes at least, seconds a micro-batch."""
        prices = self.prices(stages)
        compute = prices.forward + prices.backward
        whole = np.maximum(compute, prices.reduce) if self.late else compute + prices.reduce
        return float(np.max(whole / np.array(prices.counts)))

    def _run(self, stages: Stages) -> float:
        """Seconds a micro-batch, from two runs between or beyond which they grow evenly."""
        if len(stages) == 1:
            return self.bound(stages) if self._fits_alone(stages[0]) else inf
        count = ROUNDS * self.devices
        few, many = _whole_turns(stages, count)
        work = float(few + many) * len(stages) * self.devices
        if self.work + work > MOST_WORK:
            return inf
        self.work += work
        early, late = self._until_the_end(stages, few), self._until_the_end(stages, many)
        if inf in (early, late):
            return inf
        return (early + (late - early) * (count - few) / (many - few)) / count

    def _until_the_end(self, stages: Stages, count: int) -> float:
        """Seconds of so many micro-batches; inf where a device has less memory than they need."""
        prices = self.prices(stages)
        late = tuple(int(self.late and count > 1) for count in prices.counts)
        versions = Versions(rule="pipedream", pp=len(stages), counts=prices.counts, late=late)
        priced = prices.on(without_flush(versions, count))
        end = by_recurrence(priced)
        if self.options.memory is not None:
            highest = max(max(curve.bytes) for curve in memory_curves(priced, end))
            if highest > self.options.memory:
                return inf
        return float(end.updated[0])

    def _fits_alone(self, stage: PartitionStage) -> bool:
        """Whether a replica of the whole model fits: weights, a gradient, activations."""
        weights, kept = self._inside(stage, "parameters"), self._inside(stage, "activations")
        return self.options.memory is None or 2.0 * weights + kept <= self.options.memory

    def prices(self, stages: Stages) -> StagePrices:
        """Seconds and bytes of each stage of a partition."""
        seconds, weights = self._of_each(stages, "seconds"), self._of_each(stages, "parameters")
        return StagePrices(
            forward=seconds / (1.0 + BACKWARDS),
            backward=seconds * BACKWARDS / (1.0 + BACKWARDS),
            update=np.zeros(len(stages)),
            message=self._messages(stages) / self.options.compression,
            reduce=self._reductions(stages, weights),
            weights=weights,
            activations=self._of_each(stages, "activations"),
            gradients=weights,
            static=2.0 * weights,
            counts=tuple(int(stage.replicas) for stage in stages),
        )

    def _messages(self, stages: Stages) -> Array:
        """Seconds of a message behind each stage but the last, on the links that lie there."""
        sent = []
        for stage, end in zip(stages[:-1], _ends(stages), strict=False):
            rate = rate_between(self.levels, end - stage.replicas, end)
            sent.append(float(self.states.output[stage.end - 1]) / rate)
        return np.array(sent)

    def _reductions(self, stages: Stages, weights: Array) -> Array:
        """Seconds of each stage's ring, on the widest level that its devices span."""
        counts = np.array([stage.replicas for stage in stages])
        rates = [
            rate_between(self.levels, end - stage.replicas, end - 1)
            for stage, end in zip(stages, _ends(stages), strict=True)
        ]
        return np.asarray(2.0 * (counts - 1) / counts * weights / np.array(rates))

    def _of_each(self, stages: Stages, name: str) -> Array:
        """Sums over the layers of each stage, (p,)."""
        return np.array([self._inside(stage, name) for stage in stages])

    def _inside(self, stage: PartitionStage, name: str) -> float:
        """The sum of a stage's layers."""
        total = getattr(self.states, name)
        return float(total[stage.end - 1] - (total[stage.first - 1] if stage.first else 0.0))


def _ends(stages: Stages) -> list[int]:
    """How many devices each stage and those before it have."""
    counts = [stage.replicas for stage in stages]
    return [int(end) for end in np.cumsum(counts)]


def _whole_turns(stages: Stages, count: int) -> tuple[int, int]:
    """About half and about all of so many micro-batches, in which every replica has its turn."""
    turns = lcm(*(stage.replicas for stage in stages))
    few = max(count // (2 * turns), 1) * turns
    return few, few + turns * max(-(-(count - few) // turns), 1)
