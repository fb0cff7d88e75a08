"""This rank's stage of a pipeline whose stages differ or that never flushes: trained and measured.

All batches of a pipeline without flush are one stream of micro-batches: a step is what lies between
the last backwards of two batches, and no rank waits for another between them. With a flush a step
is a batch and an update of all stages.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from executor.faults.reports import HERE
from executor.measure.memory import peak_above
from executor.model.first_values import Values
from executor.model.loss import Batch, cross_entropy
from executor.model.module import TransformerStage, build_stage
from executor.model.stage import (
    Stage,
    answers,
    average_balance,
    layer_count,
    recompute_first,
)
from executor.parallel.precision import apply_autocast, gradient_dtype, storage_dtype
from executor.parallel.tensor import apply_tensor_parallel
from executor.pipeline.stage_groups import StageGroups, StageOrder, Weights
from executor.pipeline.stage_run import Ran, StageRank
from executor.run.part import RankPart
from executor.run.run import optimizer_of
from executor.run.stage_tasks.descent import Descent
from executor.run.stage_tasks.stage_gradient import StageGradient
from executor.run.stage_tasks.stepped import BatchEnds, Stepped
from executor.strategies.replays.log import Ended
from executor.training.stage_edges import stage_edges
from parsim.cost.step.stages import plan_cut
from parsim.model.reader import Description
from parsim.plan import Plan, Recompute
from parsim.plan.stages import warmups
from parsim.schedule.replicas import StageReplicas
from parsim.sim.stages.rows import stage_rows
from parsim.sim.stages.run import shown_microbatches
from parsim.sim.stages.variants import alike
from parsim.sim.stages.versions import versions_of


def order_of(plan: Plan) -> StageOrder:
    """Replicas, order and versions of a plan's pipeline."""
    stages = plan.stages or ()
    counts = tuple(stage.replicas for stage in stages) or (1,) * plan.pp
    replicas = StageReplicas(counts, tensor=plan.stage_tp)
    return StageOrder(
        replicas=replicas,
        warmups=warmups(counts, [stage.warmup for stage in stages]),
        versions=versions_of(plan),
        actions=None if plan.actions is None else stage_rows(plan, replicas),
    )


class StageTrainer:
    """This rank's stage, its optimizer and its micro-batches."""

    def __init__(self, part: RankPart) -> None:
        """Build the stage of this rank; to be called on all ranks at once."""
        self.part, self.options = part, part.options
        self.plan = part.scenario.fixed_plan()
        self.config = optimizer_of(part.scenario, part.options)
        self.count = self.plan.num_microbatches
        self.order = order_of(self.plan)
        replicas = self.order.replicas
        self.worker = replicas.rank_of[dist.get_rank()]
        self.stage = replicas.stage_of[self.worker]
        self.groups = StageGroups.of(replicas)
        self.module = self.build(self.stage, part.scenario.model, self.groups.mesh)
        self.rank = self.rank_in(self.order)
        self.update = self.descent(self.rank.weights.newest, self.stage)
        self._batch: tuple[int, Batch] | None = None
        self.most_versions = 1

    def rank_in(self, order: StageOrder) -> StageRank:
        """This rank's part of a pipeline in some order."""
        edges = list(stage_edges(self.part.scenario.model, alike(self.plan)))
        around = edges[self.stage], edges[self.stage + 1]
        sums = gradient_dtype(self.plan)
        return StageRank(order, self.module, around, dist.group.WORLD, self.groups.sharers, sums)

    def descent(self, weights: Weights, stage: int) -> Descent:
        """The optimizer of a stage's weights."""
        return Descent(weights, self.config, self.order.updates(stage, self.count))

    def build(
        self,
        stage: int,
        spec: Description,
        mesh: DeviceMesh | None = None,
        values: Values | None = None,
    ) -> Stage:
        """A stage of a model with its first weights, or the part of this rank of a mesh."""
        plan = self.plan
        cut = plan_cut(alike(plan), layer_count(spec))
        built = build_stage(
            spec,
            first_layer=sum(cut[:stage]),
            num_layers=cut[stage],
            embedding=stage == 0,
            head=stage == len(cut) - 1,
            device=self.part.device,
            dtype=storage_dtype(plan),
            recompute=plan.recompute,
            seed=self.options.seed,
            values=values or self.part.values,
        )
        self._recompute(built, stage)
        if mesh is not None and isinstance(built, TransformerStage):
            apply_tensor_parallel(built, mesh, sequence_parallel=False)
        average_balance(built, self.together)
        apply_autocast(built, plan, self.part.device.type)
        return built

    def _recompute(self, built: Stage, stage: int) -> None:
        """Let layers of a stage be recomputed as a whole: as many as it or its plan says."""
        plan = self.plan
        of_all = plan.recompute_layers or None
        again = plan.stages[stage].recompute_layers if plan.stages else of_all
        if again is not None:
            others = min(plan.recompute, Recompute.SELECTIVE)
            recompute_first(built.layers.values(), again, others)

    @property
    def together(self) -> int:
        """Micro-batches whose mean an update takes."""
        return self.order.versions.batch if self.order.versions else self.count

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """The loss, of which an update takes the sum over its micro-batches."""
        words = answers(self.part.scenario.model)
        return cross_entropy(output, target, self.groups.tensor, words=words) / self.together

    def microbatch(self, number: int) -> Batch:
        """A micro-batch of the whole training."""
        step, turn = divmod(number, self.count)
        tokens, targets = self.global_batch(step)
        size = self.plan.microbatch_size
        mine = slice(turn * size, (turn + 1) * size)
        return tokens[mine], targets[mine]

    def global_batch(self, step: int) -> Batch:
        """The global batch of a step; the latest is kept."""
        if self._batch is None or self._batch[0] != step:
            self._batch = step, self.part.whole(step)
        return self._batch[1]

    @property
    def tells(self) -> bool:
        """Whether this is the rank that tells of steps: the first one that knows their losses."""
        replicas = self.order.replicas
        (first, *_) = replicas.ranks(replicas.stages - 1)
        return bool(dist.get_rank() == replicas.devices(first)[0])

    def train(self, told: Callable[[Ended], None] = lambda ended: None) -> Stepped:
        """All steps of warm-up and measurement; `told` hears of each on the last stage's ranks."""
        ends = BatchEnds(rank=self.rank, count=self.count, told=told)
        dist.barrier()
        start = time.perf_counter()
        if self.order.versions is not None:
            self._without_flush(ends, lambda: time.perf_counter() - start)
            return ends.stepped
        for step in range(self.options.last_step):
            HERE.enter("step", step)
            ran, norm = self._batch_of(step)
            ends.stepped.losses |= ran.losses
            dist.barrier()
            ends.add(time.perf_counter() - start, norm)
        return ends.stepped

    def _without_flush(self, ends: BatchEnds, clock: Callable[[], float]) -> None:
        """One stream of micro-batches; a batch ends with this rank's last one of it."""
        replica = self.worker - self.order.replicas.ranks(self.stage)[0]
        last = self.count - self.rank.count + replica

        def after(mb: int, loss: float | None) -> None:
            if loss is not None:
                ends.stepped.losses[mb] = loss * self.together
            if mb % self.count == last:
                HERE.enter("step", mb // self.count)
                ends.add(clock())

        count = self.options.last_step * self.count
        self.rank.run(count, self.microbatch, self.loss, self.update, after)

    def _batch_of(self, step: int) -> tuple[Ran, float]:
        """One batch with its update behind the flush, and its gradient's norm, see `StageGradient`.

        The losses are by micro-batch of the training.
        """
        first = step * self.count
        ran = self.rank.run(
            self.count, lambda mb: self.microbatch(first + mb), self.loss, self.update
        )
        gradient = self.gradient()
        self.update(self.rank.weights.newest, gradient.clipped(gradient.whole(ran.gradient or [])))
        ran.losses = {first + mb: loss * self.count for mb, loss in ran.losses.items()}
        return ran, gradient.norm

    def gradient(self) -> StageGradient:
        """What is done with a batch's gradient of the stage as it is now."""
        return StageGradient(
            self.rank,
            self.module.tied_parameters(),
            self.groups,
            clip=self.config.clip,
        )

    def peak(self) -> float:
        """Highest bytes on this rank over some more micro-batches, fill and drain among them."""
        versions = self.order.versions
        more = shown_microbatches(versions, self.count) if versions else self.count

        def step() -> None:
            self.rank.weights.move()
            if self.order.versions is None:
                self._batch_of(0)
                return
            ran = self.rank.run(more, self.microbatch, self.loss, self.update)
            self.most_versions = ran.most_versions

        # the profiler sees only those weights freed that it saw taken: the copies
        first = sum(weight.nbytes for weight in self.rank.weights.newest)
        return float(peak_above(self.part.device, step) - first)

    def by_stage(self, peaks: Sequence[float]) -> list[float]:
        """The highest of the peaks of each stage's ranks."""
        replicas = self.order.replicas
        stages = [replicas.stage_of[row] for row in replicas.rank_of]
        return [
            max(peak for peak, at in zip(peaks, stages, strict=True) if at == stage)
            for stage in range(replicas.stages)
        ]
