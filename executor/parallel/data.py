"""Data parallelism of one stage: how its gradients meet those of its copies.

    zero_stage  one step of a plan without pipeline
    0           DistributedDataParallel, or our buckets where that has no answer (see `buckets`)
    1           our buckets: reduce-scatter, update of one share, gathered by the optimizer
    2           fully_shard, parameters kept gathered from forward to the last backward
    3           fully_shard, parameters gathered for each block and pass (see `fully_shard`)

Under a pipeline stages 0 and 1 use our buckets, sent at REDUCE_GRAD; 2 and 3 are gathered and
reduced at UNSHARD and REDUCE_GRAD. Buckets also add up in fp32 what bf16 parameters have of
gradients, with or without data parallelism, and what is summed with a rank that holds the same
stages (`held_twice`).
"""

from __future__ import annotations

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

from executor.devices.mesh import axis_group
from executor.model.stage import Stage
from executor.parallel.experts import ExpertPlace
from executor.parallel.fully_shard import shard_fully
from executor.parallel.gradients.buckets import GradientBuckets
from executor.parallel.gradients.layout import Groups, trainable
from executor.parallel.precision import apply_autocast, gradient_dtype, storage_dtype, wire_dtype
from executor.parallel.refused import check_parallel
from executor.parallel.replica import DataKind, Replica
from parsim.plan import Plan
from parsim.plan.fields import BUCKET_BYTES
from parsim.units import MIB


def apply_data_parallel(
    stage: Stage, plan: Plan, mesh: DeviceMesh, experts: ExpertPlace | None = None
) -> Replica:
    """Wrap a stage, tensor-parallel or not, for the data axes of a mesh.

    `experts` is the place of this rank among those of its experts, where that is not the mesh's.

    Raises:
        PlanError: a combination that would train wrongly, with the reason.
    """
    check_parallel(plan)
    apply_autocast(stage, plan, mesh.device_type)
    kind = data_kind(plan)
    if experts is not None and kind != "fully_shard":
        kind = "buckets"
    module: nn.Module = stage
    buckets = None
    if kind == "fully_shard":
        shard_fully(stage, plan, mesh, experts)
    elif kind == "ddp":
        module = _distributed(stage, plan, mesh)
    elif kind == "buckets":
        buckets = _buckets(stage, plan, mesh, None if experts is None else experts.gradients)
    return Replica(
        stage=stage,
        module=module,
        kind=kind,
        plan=plan,
        mesh=mesh,
        buckets=buckets,
        experts=experts,
    )


def _distributed(stage: Stage, plan: Plan, mesh: DeviceMesh) -> DistributedDataParallel:
    """The stage as torch wraps it for replicas."""
    return DistributedDataParallel(
        stage,
        process_group=mesh["dp_replicate"].get_group(),
        bucket_cap_mb=(plan.bucket_bytes or BUCKET_BYTES) / MIB,
        gradient_as_bucket_view=True,
        # no_sync skips the bookkeeping of the first backward that a static graph relies on
        static_graph=plan.num_microbatches == 1,
    )


def data_kind(plan: Plan) -> DataKind:
    """Choose how gradients meet."""
    if plan.zero_stage >= 2:
        return "fully_shard"
    pure = storage_dtype(plan) != torch.float32
    if plan.zero_stage == 1 or pure or plan.copies > 1:
        return "buckets"
    if plan.dp * plan.cp == 1:
        return "plain"
    torch_can = plan.pp == 1 and plan.tp == 1 and plan.overlap_grad_reduce
    torch_can = torch_can and wire_dtype(plan) == torch.float32
    return "ddp" if torch_can else "buckets"


def _buckets(stage: Stage, plan: Plan, mesh: DeviceMesh, experts: Groups | None) -> GradientBuckets:
    """Buckets of a stage's gradients, those of experts in groups of their own."""
    parameters = trainable(stage.named_parameters())
    inside = (name for name in parameters if ".experts." in name and experts)
    routed = {name: parameters[name] for name in inside}
    return GradientBuckets(
        {name: parameter for name, parameter in parameters.items() if name not in routed},
        Groups(
            replicate=axis_group(mesh, "dp_replicate"),
            shard=axis_group(mesh, "dp_shard"),
            part=f"tp{mesh['tp'].get_local_rank()}",
        ),
        bucket_bytes=plan.bucket_bytes or BUCKET_BYTES,
        dtype=gradient_dtype(plan),
        wire=wire_dtype(plan),
        # under a pipeline the schedule says when: at REDUCE_GRAD
        overlap=plan.overlap_grad_reduce and plan.pp == 1,
        # both copies of a tied table are then cut into the same shares, which can be summed
        alone=stage.tied_parameters(),
        others=[(routed, experts)] if experts else [],
    )
