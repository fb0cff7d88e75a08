"""One rank's part of a plan, ready to train: stages, their parallelism, schedule, optimizer.

Order of application, stage by stage: weights, tensor parallelism, data parallelism, then the
pipeline's runner around all stages of the rank. Without a pipeline the step is a plain loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from executor.loss import check_trainable, loss
from executor.mesh import build_mesh, coordinates, data_group
from executor.module import build_stage, seed_dropout
from executor.optimizer import OptimizerConfig, StageOptimizer
from executor.parallel.data import Replica, apply_data_parallel
from executor.parallel.precision import edge_dtype, storage_dtype
from executor.parallel.tensor import apply_tensor_parallel
from executor.parallel.tied import sum_tied_gradients
from executor.pipeline import PipelineRunner
from executor.runtime import TensorSpec
from parsim.cost.stages import even_cut
from parsim.model.transformer import TransformerSpec
from parsim.plan import Plan
from parsim.schedule import Schedule, build_schedule


@dataclass(slots=True, kw_only=True)
class Trainer:
    """What a rank needs to take steps; `replicas` are its stages in ascending order."""

    spec: TransformerSpec
    plan: Plan
    mesh: DeviceMesh
    schedule: Schedule
    replicas: tuple[Replica, ...]
    runner: PipelineRunner | None
    optimizer: StageOptimizer

    def gradients(self, tokens: Tensor, targets: Tensor) -> list[float]:
        """Forward and backward of this replica's batch; losses where the last stage is.

        Gradients are averaged over micro-batches and replicas, and summed over the two copies of
        a tied table.
        """
        self.optimizer.zero_grad()
        if self.runner is None:
            losses = self.replicas[0].accumulate(tokens, targets, loss)
            return [float(one) for one in losses]
        found = self.runner.step(tokens, targets)
        self._sum_tied()  # before the buckets of ZeRO-1 take the gradients over
        for replica in self.replicas:
            replica.finish()
        return found

    def step(self, tokens: Tensor, targets: Tensor) -> list[float]:
        """One training step of this replica's batch; losses where the last stage is."""
        losses = self.gradients(tokens, targets)
        self.optimizer.step()
        return losses

    def _sum_tied(self) -> None:
        """Both copies of a tied table get the sum of their gradients."""
        owners = (self.schedule.stage_rank[0], self.schedule.stage_rank[-1])
        sum_tied_gradients([replica.stage for replica in self.replicas], self.mesh, owners)


def build_trainer(
    spec: TransformerSpec,
    plan: Plan,
    *,
    device: torch.device,
    seed: int,
    optimizer: OptimizerConfig | None = None,
) -> Trainer:
    """Build this rank's part of a plan; the process group must hold plan.world_size ranks.

    Raises:
        PlanError: a combination that cannot run, or would train wrongly.
    """
    check_trainable(spec)
    mesh = build_mesh(plan, device.type)
    place = coordinates(plan, dist.get_rank())
    pp = place["pp"]
    seed_dropout(seed, *_dropout_place(plan, place))
    schedule = _schedule(plan)
    replicas = tuple(
        _replica(spec, plan, mesh, stage, device=device, seed=seed)
        for stage in schedule.stages_on(pp)
    )
    return Trainer(
        spec=spec,
        plan=plan,
        mesh=mesh,
        schedule=schedule,
        replicas=replicas,
        runner=_runner(spec, plan, mesh, schedule, replicas, pp, device),
        optimizer=StageOptimizer(replicas, optimizer or OptimizerConfig()),
    )


def _dropout_place(plan: Plan, place: dict[str, int]) -> tuple[int, ...]:
    """Tensor ranks draw the same masks, unless sequence parallelism gives them other tokens."""
    shared = (place["dp_replicate"], place["dp_shard"], place["pp"])
    return (*shared, place["tp"]) if plan.sequence_parallel else shared


def _schedule(plan: Plan) -> Schedule:
    name = plan.schedule if plan.pp > 1 else "1f1b"
    return build_schedule(
        name, pp=plan.pp, num_microbatches=plan.num_microbatches, v=plan.v if plan.pp > 1 else 1
    )


def _replica(
    spec: TransformerSpec,
    plan: Plan,
    mesh: DeviceMesh,
    stage: int,
    *,
    device: torch.device,
    seed: int,
) -> Replica:
    cut = plan.stage_layers or even_cut(spec.num_layers, plan.num_stages)
    built = build_stage(
        spec,
        first_layer=sum(cut[:stage]),
        num_layers=cut[stage],
        embedding=stage == 0,
        head=stage == plan.num_stages - 1,
        device=device,
        dtype=storage_dtype(plan),
        recompute=plan.recompute,
        seed=seed,
    )
    apply_tensor_parallel(
        built, mesh["tp"], sequence_parallel=plan.sequence_parallel, loss_parallel=False
    )
    return apply_data_parallel(built, plan, mesh)


def _runner(
    spec: TransformerSpec,
    plan: Plan,
    mesh: DeviceMesh,
    schedule: Schedule,
    replicas: Sequence[Replica],
    pp: int,
    device: torch.device,
) -> PipelineRunner | None:
    if plan.pp == 1:
        return None
    stages = dict(zip(schedule.stages_on(pp), (r.module for r in replicas), strict=True))
    reduced_here = plan.zero_stage < 2 and plan.dp > 1
    return PipelineRunner(
        schedule,
        stages,
        edges=list(_edges(spec, plan)),
        loss_fn=loss,
        group=mesh["pp"].get_group(),
        device=device,
        dp_group=data_group(plan, mesh) if reduced_here else None,
        zero_stage=plan.zero_stage,
    )


def _edges(spec: TransformerSpec, plan: Plan) -> Iterator[TensorSpec]:
    """What enters each stage, and what leaves the last one, for one micro-batch."""
    size, tokens = plan.microbatch_size, spec.seq_len
    local = tokens // plan.tp if plan.sequence_parallel else tokens
    hidden = edge_dtype(plan)
    yield TensorSpec((size, tokens), torch.int64)
    for _ in range(plan.num_stages - 1):
        yield TensorSpec((size, local, spec.hidden_size), hidden)
    yield TensorSpec((size, tokens, spec.vocab_rows), hidden)


@contextmanager
def process_group(backend: str, timeout_seconds: float) -> Iterator[None]:
    """Join the group that torchrun describes, and leave it."""
    from datetime import timedelta

    dist.init_process_group(backend, timeout=timedelta(seconds=timeout_seconds))
    try:
        yield
    finally:
        dist.destroy_process_group()
