"""From a plan to this rank's `Trainer`: stages, their parallelism, schedule, optimizer.

Order of application, stage by stage: weights, context, tensor, expert, data parallelism, then the
pipeline's runner around all stages of the rank. Without a pipeline the step is a plain loop.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from executor.devices.mesh import build_mesh, coordinates, replica_group
from executor.model.batch_norm import synchronise
from executor.model.compiled import compile_layers
from executor.model.first_values import Values, seeded
from executor.model.graph.modules import check_cut
from executor.model.loss import check_trainable
from executor.model.mixture.experts import WHOLE
from executor.model.module import TransformerStage, build_stage, seed_dropout
from executor.model.offload import HostStore, keep_in, keep_on_host
from executor.model.stage import Stage, has_experts, layer_count, recompute_first
from executor.parallel.context import apply_context_parallel, context_group
from executor.parallel.data import apply_data_parallel
from executor.parallel.experts import (
    ExpertPlace,
    apply_balance,
    apply_expert_parallel,
    expert_place,
)
from executor.parallel.held_twice import copies_group, partners_group, tied_group
from executor.parallel.precision import storage_dtype
from executor.parallel.refused import check_context, check_split_backward
from executor.parallel.replica import Replica
from executor.parallel.tensor import apply_tensor_parallel, training_loss
from executor.pipeline.partner import Partner
from executor.pipeline.runner import PipelineRunner
from executor.training.optimizer import StageOptimizer
from executor.training.stage_edges import stage_edges
from executor.training.trainer import Trainer
from executor.training.update_rule import OptimizerConfig
from parsim.cost.step.stages import plan_cut
from parsim.model.graph.record import Graph
from parsim.model.reader import Description
from parsim.model.transformer import TransformerSpec
from parsim.plan import Plan
from parsim.schedule import Schedule, schedule_of


class _Groups(NamedTuple):
    """Whom this rank shares its stages' parameters and sequences with."""

    mesh: DeviceMesh
    context: dist.ProcessGroup | None
    experts: ExpertPlace | None

    @classmethod
    def of(cls, text: TransformerSpec | None, plan: Plan, device: str) -> _Groups:
        """The groups of a plan, on all ranks at once; `text` is None of a model without tokens."""
        mesh, context = build_mesh(plan, device), context_group(plan)
        return cls(mesh, context, None if text is None else expert_place(plan, text, device))


def build_trainer(
    spec: Description,
    plan: Plan,
    *,
    device: torch.device,
    seed: int,
    optimizer: OptimizerConfig | None = None,
    values: Values | None = None,
    backend: str | None = None,
) -> Trainer:
    """Build this rank's part of a plan; the process group must hold plan.world_size ranks.

    `values` gives the first weights; see `build_stage`. With a `backend` of torch.compile each
    layer is compiled (`executor.model.compiled`).

    Raises:
        PlanError: a combination that cannot run, or would train wrongly.
    """
    schedule = schedule_of(plan)
    _check(spec, plan, schedule, device)
    groups = _Groups.of(_text_of(spec), plan, device.type)
    position = coordinates(plan, dist.get_rank())
    seed_dropout(seed, *_dropout_place(plan, position))
    stages, first = schedule.stages_on(position["pp"]), values or seeded(seed, spec=spec)
    replicas = tuple(_replica(spec, plan, groups, stage, device, first) for stage in stages)
    if backend is not None:
        for replica in replicas:
            compile_layers(replica.stage, backend)
    trainer = _trainer(spec, plan, schedule, groups, replicas, optimizer or OptimizerConfig())
    _scale_loss(trainer)
    if plan.pp > 1:
        trainer.runner = _runner(trainer, device)
    return trainer


def _text_of(spec: Description) -> TransformerSpec | None:
    """The transformer that a model is; None: a graph, which has no tokens."""
    return None if isinstance(spec, Graph) else spec


def _trainer(
    spec: Description,
    plan: Plan,
    schedule: Schedule,
    groups: _Groups,
    replicas: tuple[Replica, ...],
    optimizer: OptimizerConfig,
) -> Trainer:
    """Join stages that are ready with the groups in which what they share is summed."""
    text = _text_of(spec)
    mesh, context, experts = groups
    return Trainer(
        spec=spec,
        plan=plan,
        mesh=mesh,
        schedule=schedule,
        replicas=replicas,
        # every token of a causal model's text counts, of which all ranks hold equally many
        loss_fn=training_loss(spec, plan, mesh, None if text is None or text.causal else context),
        tied=tied_group(mesh, schedule) if text is not None and text.tied_embeddings else None,
        copies=copies_group(mesh, schedule),
        partners=partners_group(mesh, schedule),
        optimizer=StageOptimizer(replicas, optimizer),
        context=context,
        experts=experts,
    )


def _check(spec: Description, plan: Plan, schedule: Schedule, device: torch.device) -> None:
    """Refuse what cannot be trained, or whose gradients would be wrong."""
    check_trainable(spec)
    check_split_backward(plan, schedule, experts=has_experts(spec))
    check_context(plan, spec, device.type)


def _scale_loss(trainer: Trainer) -> None:
    """Let the loss be scaled before backward where gradients are in fp16."""
    scaling = trainer.optimizer.scaling
    if scaling is not None:
        trainer.loss_fn = scaling.scaled(trainer.loss_fn)
        scaling.apply(replica.stage for replica in trainer.replicas)


def _dropout_place(plan: Plan, position: dict[str, int]) -> tuple[int, ...]:
    """Tensor ranks draw the same masks, unless sequence parallelism gives them other tokens."""
    shared = (position["dp_replicate"], position["dp_shard"], position["pp"])
    tokens = (position["cp"],) if plan.cp > 1 else ()  # other tokens
    return (*shared, *tokens, position["tp"]) if plan.sequence_parallel else (*shared, *tokens)


def _replica(
    spec: Description,
    plan: Plan,
    groups: _Groups,
    stage: int,
    device: torch.device,
    values: Values,
) -> Replica:
    """Build one stage and apply to it what the plan says, in the order above."""
    built = _stage(spec, plan, groups.experts, stage, device, values)
    if isinstance(built, TransformerStage):
        apply_context_parallel(built, plan, groups.context)
        apply_tensor_parallel(built, groups.mesh["tp"], sequence_parallel=plan.sequence_parallel)
        apply_expert_parallel(built, groups.experts)
        apply_balance(built, plan)
    _spare_memory(built, plan, device)
    if plan.sync_batch_norm and plan.dp > 1:
        synchronise(built, replica_group(groups.mesh, plan))
    return apply_data_parallel(built, plan, groups.mesh, groups.experts)


def _stage(
    spec: Description,
    plan: Plan,
    experts: ExpertPlace | None,
    stage: int,
    device: torch.device,
    values: Values,
) -> Stage:
    """The layers of a stage with their first weights; of both copies of a model, the same."""
    cut, part = plan_cut(plan, layer_count(spec)), stage % plan.num_stages
    if isinstance(spec, Graph):
        check_cut(spec, cut)
    return build_stage(
        spec,
        first_layer=sum(cut[:part]),
        num_layers=cut[part],
        embedding=part == 0,
        head=part == plan.num_stages - 1,
        device=device,
        dtype=storage_dtype(plan),
        recompute=plan.recompute,
        share=WHOLE if experts is None else experts.share,
        values=values,
    )


def _spare_memory(built: Stage, plan: Plan, device: torch.device) -> None:
    """Recompute the first layers and keep what others save on the host, as the plan says."""
    if plan.recompute_layers:
        recompute_first(built.layers.values(), plan.recompute_layers, plan.recompute)
    keep_on_host(built.layers, plan.offload_layers, device)


def _runner(trainer: Trainer, device: torch.device) -> PipelineRunner:
    """The pipeline around this rank's stages; with a partner where memory is balanced."""
    mesh, schedule = trainer.mesh["pp"], trainer.schedule
    here = schedule.stages_on(mesh.get_local_rank())
    replica_of = dict(zip(here, trainer.replicas, strict=True))
    runner = PipelineRunner(
        schedule,
        {index: replica.module for index, replica in replica_of.items()},
        edges=list(stage_edges(trainer.spec, trainer.plan)),
        loss_fn=trainer.loss_fn,
        group=mesh.get_group(),
        device=device,
        buckets={index: r.buckets for index, r in replica_of.items() if r.buckets is not None},
        zero_stage=trainer.plan.zero_stage,
    )
    if trainer.partners is not None:
        partner = Partner(schedule, mesh.get_local_rank(), trainer.partners)
        runner.share_with(partner)
        if partner.sends:
            layers = list(trainer.replicas[0].stage.layers.values())
            keep_in(HostStore(device, partner.copier), layers)
    return runner
