"""A plan whose every action is a task, run: by recurrence or events, with bytes and a timeline."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from parsim.arrays import Array, Ints
from parsim.cost.job import Job
from parsim.plan import Plan
from parsim.schedule.versions import Versions
from parsim.sim.drawing.timeline import predicted_hardware
from parsim.sim.memory.categories import STATIC as PARTS
from parsim.sim.program import PricedProgram, by_recurrence, memory_curves, program_timeline
from parsim.sim.recurrence.walk import StepEnd
from parsim.sim.stages.one_in_flight import updates_each
from parsim.sim.stages.plan_prices import PlanPrices
from parsim.sim.stages.prices import StagePrices, steady_state
from parsim.sim.stages.rows import stage_rows
from parsim.sim.stages.versions import versions_of
from parsim.strategy import StepProgram
from parsim.strategy.unequal_stages import unequal_stages
from parsim.strategy.weight_versions import without_flush
from parsim.timelines.timeline import ACTIONS, MemoryCurve, Timeline


def shown_microbatches(versions: Versions, count: int) -> int:
    """Whole batches of so many micro-batches that have fill, steady state and drain.

    By the third batch of PipeDream-2BW both versions are there.
    """
    least = max(4 * versions.replicas.num_ranks, 3 * versions.batch)
    return count * max(1, -(-least // count))


@dataclass(frozen=True)
class TaskRun:
    """A plan with the prices of its stages."""

    job: Job
    plan: Plan

    @cached_property
    def priced(self) -> PlanPrices:
        """The plans of equal stages that the prices are from."""
        return PlanPrices(self.job, self.plan)

    @cached_property
    def prices(self) -> StagePrices:
        """Seconds and bytes of each stage."""
        return self.priced.prices()

    @cached_property
    def versions(self) -> Versions | None:
        """The rule of weight versions, where the pipeline never flushes."""
        return versions_of(self.plan)

    @cached_property
    def program(self) -> PricedProgram:
        """The tasks of a step; of a pipeline that never flushes, of its first micro-batches."""
        return self.prices.on(self._written())

    def _written(self) -> StepProgram:
        plan, versions = self.plan, self.versions
        if versions is None:
            return unequal_stages(
                self.priced.replicas,
                stage_rows(plan, self.priced.replicas),
                blocking=self.priced.costs.blocking_p2p,
                tied=self.job.model.tied_embeddings,
            )
        return without_flush(versions, shown_microbatches(versions, plan.num_microbatches))

    @cached_property
    def end(self) -> StepEnd:
        """Times of all tasks by the recurrence."""
        return by_recurrence(self.program)

    @cached_property
    def step_time(self) -> float:
        """Seconds of a step: of so many micro-batches in the steady state without flush."""
        if self.versions is None:
            return float(self.end.step_time[0])
        return steady_state(self.versions, self.prices) * self.plan.num_microbatches

    @cached_property
    def pipeline_time(self) -> float:
        """Seconds until the last forward or backward ends; without flush, the step's."""
        if self.versions is not None:
            return self.step_time
        ends = [
            float(self.end.times[task.name].end.max())
            for task in self.program.program.tasks
            if task.kind in ACTIONS
        ]
        return max(ends)

    @cached_property
    def widths(self) -> Ints:
        """What each replica counts for in means over devices: 1 where all have equally many."""
        widths = np.array(self.priced.replicas.widths)
        return np.asarray(widths // np.gcd.reduce(widths))

    @cached_property
    def busy(self) -> Array:
        """Seconds of forwards and backwards of a step on each rank.

        Without flush also of its updates and the reductions before them, which the phase holds.
        """
        prices, counts = self.prices, np.array(self.priced.replicas.counts)
        each = prices.forward + prices.backward
        if self.versions is not None:
            each = each + self.waited + prices.update / self.versions.batch
        return prices.by_rank(each * self.plan.num_microbatches / counts)

    @cached_property
    def waited(self) -> Array:
        """Seconds of a round's reduction that a pipeline without flush waits for, (p,).

        Where updates are late, what is left of it behind the round that goes on meanwhile.
        """
        prices = self.prices
        late = np.array([stage.late_update for stage in self.plan.stages or ()] or [False])
        beside = prices.forward + prices.backward + prices.update
        return np.maximum(prices.reduce - np.where(late, beside, 0.0), 0.0)

    @cached_property
    def peaks(self) -> Array:
        """The most bytes that a replica of each stage holds, (p,)."""
        by_rank = [max(curve.bytes) for curve in memory_curves(self.program, self.end)]
        replicas = self.priced.replicas
        return np.array(
            [max(by_rank[rank] for rank in replicas.ranks(stage)) for stage in range(self.plan.pp)]
        )

    def timeline(self) -> Timeline:
        """What each rank does when, and what it holds."""
        drawn, words = program_timeline(self.program), self.plan.label()
        if self.versions is not None:
            most = max(task.microbatch for task in self.program.program.tasks)
            words += f", the first {most + 1} micro-batches"
        meta = {
            **drawn.meta,
            "source": "predicted",
            "model": self.job.model.name,
            **predicted_hardware(self.job),
            "plan": words,
            "capacity_bytes": min(system.device.memory for system in self.job.cluster.systems),
        }
        if self.versions is not None:
            meta["weight_versions"] = self.versions.table(most + 1)
        return replace(drawn, meta=meta, memory=tuple(map(self._with_parts, drawn.memory)))

    def _with_parts(self, curve: MemoryCurve) -> MemoryCurve:
        """A curve with names for what stands all the time; gradients of one backward do not."""
        use = self.priced.memory(self.priced.replicas.stage_of[curve.rank])
        standing = [name for name in PARTS if name != "gradients" or not updates_each(self.plan)]
        parts = {name: use[name] for name in standing}
        return replace(curve, parts=parts, static=sum(parts.values()))
