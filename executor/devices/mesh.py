"""Where each rank stands in the device mesh of a plan.

The names of the mesh are always AXES, outermost first. A plan's rank order changes which ranks
are neighbours, not the names: the tensor of ranks is permuted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsim.errors import PlanError
from parsim.plan import Plan
from parsim.plan.record import AXES

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh


def coordinates(plan: Plan, rank: int) -> dict[str, int]:
    """Return the place of a rank on each mesh axis.

    Raises:
        PlanError: the plan has no such rank.
    """
    if not 0 <= rank < plan.world_size:
        raise PlanError(
            f"rank={rank} is not in a plan of {plan.world_size} ranks; "
            f"allowed: 0..{plan.world_size - 1}"
        )
    return {axis: rank // plan.stride(axis) % plan.degree(axis) for axis in AXES}


def replica_index(plan: Plan, rank: int) -> int:
    """Return which share of the global batch a rank trains on, 0 .. dp-1."""
    coordinate = coordinates(plan, rank)
    return coordinate["dp_replicate"] * plan.dp_shard + coordinate["dp_shard"]


DIMS = ("pp", "dp_replicate", "dp_shard", "tp")
"""Dims of a mesh: the axes but cp, which is part of a data axis."""


def build_mesh(plan: Plan, device_type: str) -> DeviceMesh:
    """Build the mesh with the dims pp, dp_replicate, dp_shard, tp on every rank.

    Ranks of a context-parallel group have the same parameters and other tokens, as replicas have:
    cp is the inner part of dp_shard where states are sharded, and of dp_replicate where not. So
    the sizes of these dims may be more than the plan's degrees.

    The process group must exist and have the plan's world size.
    """
    from executor.devices.groups import mesh_of

    copies, shards = (1, plan.cp) if plan.zero_stage > 0 else (plan.cp, 1)
    sizes = plan.pp, plan.dp_replicate * copies, plan.dp_shard * shards, plan.tp
    return mesh_of(device_type, ranks_by_place(plan).view(sizes), DIMS)


def ranks_by_place(plan: Plan) -> Tensor:
    """Return the ranks as a tensor whose dims are AXES: the transposed rank order."""
    import torch

    sizes = [plan.degree(axis) for axis in plan.rank_order]
    ranks = torch.arange(plan.world_size).view(sizes)
    return ranks.permute([plan.rank_order.index(axis) for axis in AXES]).contiguous()


def replica_group(mesh: DeviceMesh, plan: Plan) -> ProcessGroup:
    """The ranks that hold copies or shards of the same stage: all that see another batch."""
    if plan.dp_shard == 1:
        return mesh["dp_replicate"].get_group()
    if plan.dp_replicate == 1:
        return mesh["dp_shard"].get_group()
    return mesh["dp_replicate", "dp_shard"]._flatten("dp").get_group()


def axis_group(mesh: DeviceMesh, axis: str) -> ProcessGroup | None:
    """The ranks along an axis of a mesh; None where that is one."""
    return mesh[axis].get_group() if mesh[axis].size() > 1 else None
