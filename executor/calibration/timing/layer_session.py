"""Spends the seconds for whole layers: each task once, then again those that kernels contradict.

    first pass   tasks in their order; one that does not fit the time left is a gap, and cheaper
                 ones behind it still come
    second pass  tasks whose time is more than AGAIN away from the sum of their kernels and
                 collectives, the most share x deviation first, until the time is over

The second time is taken some seconds after the first one. The mean of both counts: a machine that
is slower at times is so in steps too. Where other processes want its cores it is the quicker one,
for they only make layers slower. How far the two times are apart widens the bar, as does how much
the rounds of one timing scatter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

from executor.calibration.choice.layer_tasks import LayerTask
from executor.calibration.gaps import OUT_OF_MEMORY, TIME_OVER, Gap
from executor.calibration.timing.layers import LayerSample
from executor.calibration.timing.passes import BUSY

AGAIN = 0.05
"""Deviation from the kernels (ln) above which a layer is timed again: a few per cent."""
FIRST = 0.7
"""Share of the seconds for the first pass; a target's own sizes may take all of them."""
OVER = 1.2
OTHERS, LEAST_WEIGHT = 0.05, 1e-3
"""Weight of a usual size over a target's own, and of a part that no target has."""
PACES = (0.1, 30.0)
"""Limits of how much slower than the catalog's device tasks were so far."""

Deviations = Callable[[Sequence[LayerSample]], Sequence[float]]
"""|ln(measured / modelled)| of samples; asked on rank 0 alone."""


@dataclass(slots=True, kw_only=True)
class LayerSession:
    """The tasks of one calibration; every rank runs it, and rank 0 decides.

    `time_task` times a task for about so many seconds (None: out of memory), `agree` gives every
    rank rank 0's number, `clock` tells seconds. `end` is when the last task may begin. `queued` is
    the largest share of a task's time so far that this rank waited for a core.
    """

    time_task: Callable[[LayerTask, float], list[LayerSample] | None]
    agree: Callable[[float], float]
    clock: Callable[[], float]
    end: float
    queued: Callable[[], float] = lambda: 0.0
    ratios: list[float] = field(default_factory=list)
    timed: dict[int, list[LayerSample]] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)
    repeated: int = 0

    @property
    def samples(self) -> list[LayerSample]:
        """What counts, in the order of measuring."""
        return [sample for samples in self.timed.values() for sample in samples]

    @property
    def pace(self) -> float:
        """What tasks took over their cost by the model."""
        low, high = PACES
        return min(max(median(self.ratios), low), high) if self.ratios else 1.0

    def first_pass(self, tasks: Sequence[LayerTask], seconds: float) -> None:
        """Time the tasks in their order, each for its share of what is left of the seconds."""
        begin = self.clock()
        for i, task in enumerate(tasks):
            # usual sizes leave time for timing again what deviates
            until = self.end if task.asked_for else begin + FIRST * (self.end - begin)
            left, needed = until - self.clock(), self.pace * task.cost
            if not self.agree(float(i == 0 or needed <= left)):
                why = f"{TIME_OVER}: about {needed:.1f} s, {max(left, 0.0):.1f} s left"
                self.gaps.append(_gap(task, why))
                continue
            rest = max(FIRST * seconds - (self.clock() - begin), 0.0)
            share = _weight(task) / sum(map(_weight, tasks[i:]))
            self._time(i, task, self.agree(rest * share))

    def second_pass(self, tasks: Sequence[LayerTask], deviations: Deviations) -> None:
        """Time again what deviates, and keep what both say and how far they are apart.

        `deviations` is asked once, on rank 0; elsewhere it may give anything.
        """
        ranked = self._ranked(tasks, deviations)
        while True:
            left = self.end - self.clock()
            fitting = (i for i in ranked if self.pace * tasks[i].cost <= left)
            chosen = int(self.agree(float(next(fitting, -1))))
            if chosen < 0:
                return
            ranked = [i for i in ranked if i != chosen]
            before = self.timed[chosen]
            self._time(chosen, tasks[chosen], self.agree(self.pace * tasks[chosen].cost))
            combine = quicker if self.queued() > BUSY else between
            self.timed[chosen] = combine(before, self.timed[chosen])
            self.repeated += 1

    def _ranked(self, tasks: Sequence[LayerTask], deviations: Deviations) -> list[int]:
        """The timed tasks that deviate too far, those that matter most first."""
        worth = {}
        for i, samples in self.timed.items():
            worst = max(deviations(samples), default=0.0)
            if worst > AGAIN:
                worth[i] = (tasks[i].share * worst, worst)
        return sorted(worth, key=lambda i: worth[i], reverse=True)

    def _time(self, number: int, task: LayerTask, seconds: float) -> None:
        began = self.clock()
        samples = self.time_task(task, seconds)
        if samples is None:
            if number not in self.timed:
                self.gaps.append(_gap(task, OUT_OF_MEMORY))
            return
        self.timed[number] = samples
        lasted = self.clock() - began
        # a task repeats until its seconds are over: only beyond them it took its fewest rounds
        least = task.cost if lasted > OVER * seconds else max(task.cost, seconds)
        self.ratios.append(lasted / max(least, 1e-9))


def _weight(task: LayerTask) -> float:
    """How much of the time a task may have, to other tasks: a target's own sizes repeat longer."""
    return max(task.share * (1.0 if task.asked_for else OTHERS), LEAST_WEIGHT)


def quicker(first: Sequence[LayerSample], second: Sequence[LayerSample]) -> list[LayerSample]:
    """The quicker of two timings of one task, whose scatter says how far both were apart.

    One timing as a whole: its waits belong to its seconds. The first sample has the seconds.
    """
    lasted = [samples[0].forward + samples[0].backward for samples in (first, second)]
    kept, other = (first, second) if lasted[0] <= lasted[1] else (second, first)
    return [
        sample._replace(scatter=_scatters(sample, twin))
        for sample, twin in zip(kept, other, strict=True)
    ]


def between(first: Sequence[LayerSample], second: Sequence[LayerSample]) -> list[LayerSample]:
    """The geometric mean of two timings of one task, as sure as a single time lets expect."""
    return [
        sample._replace(
            forward=math.sqrt(sample.forward * twin.forward),
            backward=math.sqrt(sample.backward * twin.backward),
            scatter=_scatters(sample, twin),
        )
        for sample, twin in zip(first, second, strict=True)
    ]


def _scatters(sample: LayerSample, twin: LayerSample) -> tuple[float, float]:
    """What the rounds of two timings scatter by; if that is more, how far both are apart."""
    return (
        max(sample.scatter[0], twin.scatter[0], _apart(sample.forward, twin.forward)),
        max(sample.scatter[1], twin.scatter[1], _apart(sample.backward, twin.backward)),
    )


def _apart(first: float, second: float) -> float:
    """Standard deviation of a single time that two times of the same thing let expect, ln."""
    return abs(math.log(first / second)) / math.sqrt(2.0)


def _gap(task: LayerTask, reason: str) -> Gap:
    return Gap(
        kind=task.kind, words=task.words, reason=reason, share=task.share, wanted=task.asked_for
    )
