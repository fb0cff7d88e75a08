"""Prices of a plan whose stages differ: each stage is that of a plan all of whose stages are alike.

A stage with r replicas of t tensor-parallel ranks costs what it costs in the plan with dp = r and
tp = t, of the same cut; one that recomputes k of its n layers takes (1 - k / n) of the seconds of
the plan that recomputes none and k / n of those of the one that recomputes all, and holds what it
does in the plan that recomputes k of each. Messages and what all ranks do together are priced where
the ranks really lie.

Leaves out: that layers of one stage may differ in the seconds that recomputing them takes; that the
two ends of a tied table may lie far apart in the ring that reduces it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

import numpy as np

from parsim.arrays import Array
from parsim.cost.collective.collectives import collective_time
from parsim.cost.collective.group_bandwidth import neighbours
from parsim.cost.data.buckets import reduced_bytes
from parsim.cost.data.data_parallel import DataParallel
from parsim.cost.data.reduction import bucketed_reduction
from parsim.cost.job import Job
from parsim.cost.step.costs import StepCosts
from parsim.cost.step.pair_sums import head_sums
from parsim.cost.step.stages import layer_counts, tied_parameters
from parsim.cost.step.step import late_by_stage, stage_cut
from parsim.cost.stragglers import straggler_growth
from parsim.errors import PlanError
from parsim.plan import Plan, PlanTable, Recompute
from parsim.plan.stages import Stage
from parsim.schedule.replicas import StageReplicas
from parsim.sim.memory.categories import CATEGORIES
from parsim.sim.recurrence.evaluate import Evaluation, evaluate
from parsim.sim.stages.one_in_flight import highest_alone, one_in_flight, updates_each
from parsim.sim.stages.prices import StagePrices
from parsim.sim.stages.stage_messages import StageMessages
from parsim.sim.stages.variants import Variant, alike, with_room
from parsim.strategy.synchronous import GATHER, LATE, NORM


class PlanPrices:
    """Prices a plan's stages, each from the plan of equal stages that it would be part of."""

    def __init__(self, job: Job, plan: Plan) -> None:
        """Take a plan with or without stages of its own (dp = 1).

        Raises:
            PlanError: some layers of a stage are recomputed, but the stack does so with whole
                stages alone.
        """
        self.job, self.plan = job, plan
        cut = stage_cut(job, PlanTable.of([alike(plan)]))
        self.stages = plan.stages or tuple(Stage(layers=layers) for layers in cut)
        self._known: dict[Variant, Evaluation] = {}
        for number, stage in enumerate(self.stages):
            again = stage.recompute_layers
            if job.software.checkpoints_stages and again not in (None, 0, stage.layers):
                raise PlanError(
                    f"stages[{number}].recompute_layers={again}: {job.software.id} recomputes "
                    f"whole stages; use 0 or {stage.layers}"
                )

    @cached_property
    def replicas(self) -> StageReplicas:
        """The replicas of each stage."""
        counts = tuple(stage.replicas for stage in self.stages)
        return StageReplicas(counts, tensor=self.plan.stage_tp)

    def variant(self, key: Variant) -> Evaluation:
        """A plan of equal stages, evaluated once."""
        if key not in self._known:
            plan = alike(self.plan, *key)
            self._known[key] = evaluate(with_room(self.job, plan.world_size), plan)
        return self._known[key]

    def shares(self, stage: Stage, microbatches: int = 0) -> Iterator[tuple[float, Evaluation]]:
        """The plans of equal stages that a stage is part of, each with its share of the layers."""
        again, tp = stage.recompute_layers, stage.tp or self.plan.tp
        if again is None:
            key = Variant(stage.replicas, self.plan.recompute, tp, microbatches)
            yield 1.0, self.variant(key)
            return
        rest = min(self.plan.recompute, Recompute.SELECTIVE)
        share = again / stage.layers if stage.layers else 0.0
        for part, recompute in ((share, Recompute.FULL), (1.0 - share, rest)):
            if part > 0.0:
                yield part, self.variant(Variant(stage.replicas, recompute, tp, microbatches))

    def mixed(self, name: str) -> Array:
        """A field of the costs of each stage, (p,)."""
        return np.array(
            [
                sum(
                    share * float(getattr(evaluation.step.costs, name)[number, 0])
                    for share, evaluation in parts
                )
                for number, parts in enumerate(map(list, map(self.shares, self.stages)))
            ]
        )

    @cached_property
    def costs(self) -> StepCosts:
        """The costs of the plan with one replica of each stage."""
        return self.variant(Variant(1, self.plan.recompute, self.plan.stage_tp[0])).step.costs

    @property
    def table(self) -> PlanTable:
        """The plan with one replica of each stage, as a table."""
        return PlanTable.of([alike(self.plan, tp=self.plan.stage_tp[0])])

    def prices(self) -> StagePrices:
        """Seconds and bytes of each stage."""
        memory = [self.memory(number) for number in range(len(self.stages))]
        kept = np.array([self.kept(number) for number in range(len(self.stages))])
        waiting = np.array([self.waiting(number) for number in range(len(self.stages))])
        return StagePrices(
            forward=self.mixed("forward"),
            backward=self.mixed("backward"),
            update=self.mixed("optimizer"),
            message=self.messages(),
            message_back=self.messages(ahead=False),
            reduce=self.reductions(),
            weights=np.array([use["parameters"] for use in memory]),
            activations=kept,
            static=np.array([sum(use.values()) for use in memory]) - kept + waiting,
            gradients=waiting,
            counts=self.replicas.counts,
            tail=self.tail(),
        )

    def memory_variant(self, stage: Stage, microbatches: int = 0) -> Evaluation:
        """The plan of equal stages in which a stage holds what it does here."""
        again, tp = stage.recompute_layers, stage.tp or self.plan.tp
        if again is None:
            return self.variant(Variant(stage.replicas, self.plan.recompute, tp, microbatches))
        if again >= stage.layers > 0:
            return self.variant(Variant(stage.replicas, Recompute.FULL, tp, microbatches))
        rest = min(self.plan.recompute, Recompute.SELECTIVE)
        return self.variant(Variant(stage.replicas, rest, tp, microbatches, again))

    def memory(self, number: int) -> Mapping[str, float]:
        """Bytes by category at the highest of a stage that has one micro-batch in flight."""
        alone = updates_each(self.plan)
        evaluation = self.memory_variant(self.stages[number], microbatches=int(alone))
        use = one_in_flight(self.job, evaluation, number)
        highest = highest_alone(use) if alone else use
        return {name: highest[name] for name in CATEGORIES}

    def waiting(self, number: int) -> float:
        """Bytes of a gradient that is still being summed while a stage's next backward runs."""
        stage = self.stages[number]
        if not stage.late_update:
            return 0.0
        return one_in_flight(self.job, self.memory_variant(stage, microbatches=1), number)[
            "gradients"
        ]

    def kept(self, number: int) -> float:
        """Bytes that a stage keeps of a micro-batch from its forward to its backward."""
        evaluation = self.memory_variant(self.stages[number])
        return one_in_flight(self.job, evaluation, number)["activations"]

    def messages(self, *, ahead: bool = True) -> Array:
        """Seconds of a message behind each stage but the last, or of one back there, (p - 1,)."""
        messages = StageMessages(self.job.system, self.replicas, self.plan.stage_tp)
        return messages.seconds(self.job, self.table, ahead=ahead)

    def reductions(self) -> Array:
        """What is left of each stage's reduction behind its last backward, (p,)."""
        backward = self.mixed("backward")
        return np.array([self._reduction(stage, backward[stage]) for stage in range(self.plan.pp)])

    def _reduction(self, stage: int, backward: float) -> float:
        """Buckets of a stage's gradients, ready at an even pace during its last backward."""
        replicas, job = self.replicas.counts[stage], self.job
        tp = self.plan.stage_tp[stage]
        step = self.variant(Variant(replicas, self.plan.recompute, tp)).step
        counts = layer_counts(job.model, stage_cut(job, step.pricing.table))
        heads = head_sums(job, step.pricing.table, counts)
        copies = float(np.broadcast_to(heads, (len(counts), 1))[stage, 0])
        if replicas == 1:
            return copies
        first = self.replicas.devices(self.replicas.ranks(stage)[0])[0]
        where = neighbours(job.system, first, replicas, tp)
        data = DataParallel.of(job, step.pricing.table).with_replicas(where)
        buckets = bucketed_reduction(data, *step.costs.updated)
        count, each = (float(column[stage, 0]) for column in buckets)
        each += copies / count
        if not step.costs.overlap_reduce:
            return count * each
        return max(count * each - backward * (1.0 - 1.0 / max(count, 1.0)), each)

    def tail(self) -> dict[str, Array]:
        """Prices of what a synchronous step ends with; ranks or one for all."""
        variants = [evaluation.step for evaluation in self._known.values()]
        late = [
            late_by_stage(step.job, step.pricing.table, step.pricing.layers(0), step.costs).max()
            for step in variants
        ]
        ranks = self.replicas.stage_of
        growth = straggler_growth(
            self.job,
            world=np.array([self.plan.world_size]),
            teams=np.array([sum(self.replicas.counts)]),
            dp=np.array([max(self.replicas.counts)]),
            compute=self.table.precision.compute,
        )
        return {
            LATE: np.array([max(map(float, late))]),
            NORM: np.array([max(float(step.costs.norm[0]) for step in variants)]),
            "optimizer": self.mixed("optimizer")[list(ranks)],
            GATHER: self.mixed("gather")[list(ranks)],
            "tied": self._tied(),
            "straggler": growth,
        }

    def _tied(self) -> Array:
        """All-reduce of the shared table's gradient over all ranks that hold it, (1,)."""
        if not self.job.model.tied_embeddings:
            return np.zeros(1)
        holders = self.replicas.counts[0] + self.replicas.counts[-1]
        size = tied_parameters(self.job.model, self.table) * reduced_bytes(self.table)
        where = neighbours(self.job.system, 0, holders, self.plan.stage_tp[0])
        return np.asarray(collective_time(self.job.system, "all_reduce", size, where))
