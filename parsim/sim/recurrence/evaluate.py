"""Times and bytes of one plan's step (tier B): its pipelines, what follows them, and memory.

A replica's pipeline runs by itself until its gradients are reduced, so each class of replicas is a
column of the max-plus recurrence; classes with other numbers of micro-batches have schedules of
their own. Replicas that exchange shards (ZeRO-2 and 3) end those actions together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from parsim.arrays import Array, Flags
from parsim.cost.job import Job
from parsim.cost.step.costs import StepCosts
from parsim.cost.step.layer_table import LayerTable
from parsim.plan import Plan
from parsim.schedule import Kind
from parsim.sim.memory.categories import MemoryUse
from parsim.sim.memory.eager_peaks import peak_memory
from parsim.sim.recurrence.maxplus import ClassTimes, Run, pipeline_ends, run, sender_class
from parsim.sim.recurrence.walk import PipelineEnds, StepEnd, by_class, walk
from parsim.sim.step.compiled_schedule import KINDS, CompiledSchedule
from parsim.sim.step.priced_step import PricedStep, price_step, prices_of
from parsim.sim.step.replica_classes import ReplicaClasses, SlowRanks
from parsim.sim.step.schedule_costs import on_ranks
from parsim.strategy.synchronous import LATE

ROUNDING = 1e-9
"""Share by which a sum of some million actions' seconds may miss their product: 2^-52 for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Everything tier B knows of one plan; columns are classes of replicas.

    `runs` (of one column each) are the pipelines of the classes, `memory` is by the number of
    micro-batches.
    """

    step: PricedStep
    runs: tuple[Run, ...]
    end: StepEnd
    memory: dict[int, MemoryUse]

    @property
    def step_time(self) -> float:
        """How long the step takes, seconds."""
        return float(self.end.step_time[0])

    @property
    def updated(self) -> float:
        """Seconds to the end of the last update, before what the step grows by."""
        return float(self.end.updated[0])

    @property
    def barrier(self) -> float:
        """Seconds until all ranks have reduced their gradients and may take their norm."""
        return float(self.end.times[LATE].end.max())

    @property
    def reduced(self) -> Array:
        """End of each rank's gradient reduction and last action, (p, C)."""
        return self.end.times[LATE].ready

    @property
    def clock(self) -> Array:
        """End of each rank's last action, (p, C)."""
        return np.concatenate([result.clock for result in self.runs], axis=1)

    @property
    def pipeline_time(self) -> float:
        """From the first action's start to the last action's end, seconds."""
        return float(self.clock.max())

    @property
    def busy(self) -> Array:
        """Compute-stream seconds of each rank in the pipeline phase, (p, C)."""
        columns = range(self.step.num_classes)
        return np.concatenate(
            [busy_time(self.step.compiled[c], self.step.column(c)) for c in columns], axis=1
        )

    @property
    def bubble_fraction(self) -> float:
        """Idle share of the pipeline phase, mean over all ranks; rounding is 0."""
        busy = self.busy.mean(axis=0) @ self.step.shares
        return float(_idle_share(np.asarray(busy), np.asarray(self.pipeline_time)))

    @property
    def peak(self) -> Array:
        """Bytes at the peak of each rank, (p, C)."""
        columns = range(self.step.num_classes)
        return np.stack([self.memory_of(c).peak[:, 0] for c in columns], axis=1)

    @property
    def uncached(self) -> Array:
        """Bytes of the update's copies that are reserved beside the peak of each rank, (p, C)."""
        columns = range(self.step.num_classes)
        return np.stack([self.memory_of(c).uncached[:, 0] for c in columns], axis=1)

    def memory_of(self, number: int) -> MemoryUse:
        """The bytes of one class."""
        return self.memory[self.step.schedule(number).num_microbatches]


def evaluate(
    job: Job,
    plan: Plan,
    *,
    layers: Sequence[LayerTable] = (),
    classes: ReplicaClasses | None = None,
    by_kind: bool = False,
    keep: bool = False,
    memory: bool = True,
    slow_ranks: SlowRanks = (),
) -> Evaluation:
    """Simulate one plan; arguments as of `price_step` and `evaluate_step`."""
    step = price_step(
        job, plan, layers=layers, classes=classes, by_kind=by_kind, slow_ranks=slow_ranks
    )
    return evaluate_step(step, keep=keep, memory=memory)


def evaluate_step(step: PricedStep, *, keep: bool = False, memory: bool = True) -> Evaluation:
    """Simulate a priced step.

    Args:
        step: a plan, priced.
        keep: also keep every action's finish time (for timelines).
        memory: also count bytes.
    """
    runs = _runs(step, keep)
    ends = [
        pipeline_ends(step.compiled[c], step.column(c), result) for c, result in enumerate(runs)
    ]
    together = PipelineEnds(*(np.concatenate(parts, axis=1) for parts in zip(*ends, strict=True)))
    join = by_class(step.classes.sharers)
    return Evaluation(
        step=step,
        runs=runs,
        end=walk(step.program, prices_of(step.costs), together, join),
        memory=step_memory(step) if memory else {},
    )


def step_memory(step: PricedStep) -> dict[int, MemoryUse]:
    """Bytes by number of micro-batches: they do not depend on the kind of node."""
    group, pricing = step.group(0), step.pricing
    costs = pricing.costs((group, 1 << group, 1 << group))
    return {
        compiled.schedule.num_microbatches: peak_memory(
            step.job_on(group), pricing.table, pricing.layers(group), costs, compiled.schedule
        )
        for compiled in {id(c): c for c in step.compiled}.values()
    }


def busy_time(compiled: CompiledSchedule, costs: StepCosts) -> Array:
    """Compute-stream seconds of each rank in the pipeline phase, (p, B)."""
    schedule = compiled.schedule
    both = on_ranks(costs.forward + costs.backward, schedule)
    return np.asarray(both * (schedule.num_microbatches / schedule.copies))


def bubble_fraction(compiled: CompiledSchedule, costs: StepCosts, result: Run) -> Array:
    """Idle share of the pipeline phase, mean over ranks, (B,); rounding is 0."""
    return _idle_share(busy_time(compiled, costs).mean(axis=0), result.clock.max(axis=0))


def _idle_share(busy: Array, phase: Array) -> Array:
    """What is left of a phase's seconds, as a share of them."""
    idle = 1.0 - busy / phase
    return np.where(np.abs(idle) < ROUNDING, 0.0, idle)


def pipeline(compiled: CompiledSchedule, costs: StepCosts, *, keep: bool = False) -> Run:
    """The pipeline phase of B plans, with sends on or beside the compute stream.

    A schedule that repeats one micro-batch's chain is run once: stage 0 ends each backward, so the
    next chain begins when it ends, and every clock is that of one chain plus those before it.
    """
    times = ClassTimes.of(compiled, costs)
    once = run(compiled, times.blocking() if costs.blocking_p2p else times, keep=keep)
    if compiled.repeats == 1:
        return once
    before = (compiled.repeats - 1) * once.clock[0]
    return Run(clock=once.clock + before, last_end=once.last_end + before, finish=None)


def _runs(step: PricedStep, keep: bool) -> tuple[Run, ...]:
    """The pipeline phase of each class; those with equal schedules at once."""
    results: dict[int, Run] = {}
    for compiled in {id(compiled): compiled for compiled in step.compiled}.values():
        alike = np.array([c for c, other in enumerate(step.compiled) if other is compiled])
        costs, sharers = step.costs.take(alike), step.classes.sharers[np.ix_(alike, alike)]
        if step.devices.shards_in_actions and sharers.sum() > len(alike):
            result = in_step(compiled, costs, sharers, step.plan.zero_stage)
        else:
            result = pipeline(compiled, costs, keep=keep)
        results |= {int(c): _column(result, i) for i, c in enumerate(alike)}
    return tuple(results[c] for c in range(step.num_classes))


def _column(result: Run, number: int) -> Run:
    columns = [number]
    finish = None if result.finish is None else result.finish[:, columns]
    return Run(clock=result.clock[:, columns], last_end=result.last_end[:, columns], finish=finish)


def in_step(compiled: CompiledSchedule, costs: StepCosts, sharers: Flags, zero_stage: int) -> Run:
    """The pipeline phase of replicas that end their actions together.

    ZeRO-3 gathers parameters in every forward and, as ZeRO-2, scatters gradients in every backward.

    Leaves out: that they meet layer by layer, so that one may be late in one layer and another in
    the next.
    """
    times = ClassTimes.of(compiled, costs)
    times = times.blocking() if costs.blocking_p2p else times
    gathers = zero_stage == 3
    together = {Kind.F: gathers, Kind.B: True, Kind.I: gathers, Kind.W: True}
    finish = np.zeros((compiled.num_actions + 1, costs.num_plans))
    rows = (compiled.before, compiled.source, compiled.duration_class, sender_class(compiled))
    actions = zip(*(row.tolist() for row in rows), strict=True)
    for position, (before, source, what, sent) in enumerate(actions):
        start = np.maximum(finish[before], finish[source] + times.hop[sent])
        end = start + times.duration[what]
        if together[Kind(what % KINDS)]:
            end = np.where(sharers, end, -np.inf).max(axis=1)
        finish[position + 1] = end
    return Run(
        clock=finish[compiled.final], last_end=finish[compiled.last_backward + 1], finish=finish[1:]
    )
