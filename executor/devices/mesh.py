"""Where each rank stands in the device mesh of a plan, and the groups that it is in.

The names of the mesh are always AXES, outermost first. A plan's rank order changes which ranks
are neighbours, not the names: the tensor of ranks is permuted.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist

from executor.devices.event_loops import let_senders_run
from parsim.errors import PlanError
from parsim.launch.watch import attempt
from parsim.plan import AXES, Plan

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh

_BUILT: dict[tuple[Any, ...], Any] = {}
"""What was built in the world that stands under the key WORLD."""
_WORLD = ("world",)

_HOSTED = "TORCHELASTIC_USE_AGENT_STORE"
"""Environment variable of torchrun: whether the ranks find a store in it, or rank 0 opens one."""
_JOINED = itertools.count()
"""Numbers the worlds that this process joins; all its ranks join equally many."""

T = TypeVar("T")


def mesh_of(device_type: str, ranks: Tensor, names: Sequence[str]) -> DeviceMesh:
    """The mesh of these ranks, whose dims have these names; every rank asks for it."""
    from torch.distributed.device_mesh import DeviceMesh

    key = ("mesh", device_type, tuple(ranks.shape), tuple(ranks.flatten().tolist()), tuple(names))
    return _once(key, lambda: DeviceMesh(device_type, ranks, mesh_dim_names=tuple(names)))


def subgroup(groups: Sequence[Sequence[int]], purpose: str = "") -> dist.ProcessGroup | None:
    """The one of these groups of ranks that this rank is in, if any; every rank asks for all.

    What is sent for another `purpose` has groups of its own, and needs no common order with it.
    """
    if not groups:
        return None
    key = ("subgroups", tuple(tuple(group) for group in groups), purpose)
    return _once(key, lambda: dist.new_subgroups_by_enumeration([list(g) for g in groups])[0])


def ranks_of_heads(mesh: DeviceMesh, heads: int) -> DeviceMesh:
    """Tensor ranks as (heads, copies): which key-value head each holds; every rank asks for it."""
    from executor.torch_internals.distributed import root_of, unfolded

    ranks = tuple(mesh.mesh.flatten().tolist())
    sizes = (heads, len(ranks) // heads)
    key = ("heads", id(root_of(mesh)), ranks, heads)
    return _once(key, lambda: unfolded(mesh, sizes, ("heads", "copies")))


def _once(key: tuple[Any, ...], build: Callable[[], Any]) -> Any:  # noqa: ANN401
    """What was built under a key in this world, or is built now.

    Each group costs threads (gloo: six of a mesh's groups a rank) or memory of the GPU (an NCCL
    communicator's buffers), and none of it is given back before the process leaves its world. A run
    that verifies builds its plan twice, a suite dozens of times.
    """
    if _BUILT.get(_WORLD) is not dist.group.WORLD:
        _BUILT.clear()
        _BUILT[_WORLD] = dist.group.WORLD
    if key not in _BUILT:
        _BUILT[key] = build()
        let_senders_run()
    return _BUILT[key]


@contextmanager
def process_group(
    backend: str, timeout_seconds: float, device: torch.device | None = None
) -> Iterator[None]:
    """Join the group that torchrun describes, and leave it.

    A rank over NCCL names its `device`: it then connects at once, a mesh's groups are split off
    instead of connected anew, and a barrier does not guess where to run. Gloo, through which ranks
    may share a GPU, cannot split groups off: a mesh over it with a device named is an error.
    """
    gpu = device if backend == "nccl" else None
    timeout = timedelta(seconds=timeout_seconds)
    where = _in_torchrun(timeout) if os.environ.get(_HOSTED) == "True" else {}
    dist.init_process_group(backend, timeout=timeout, device_id=gpu, **where)
    let_senders_run()
    try:
        yield
    finally:
        dist.destroy_process_group()


def _in_torchrun(timeout: timedelta) -> dict[str, Any]:
    """Where a world's ranks meet: in the store of torchrun, which has had its port all along.

    Torchrun keeps it for all starts of the ranks. In a part of its own, a start does not find the
    addresses of ranks that were killed, nor a second world of a start those of the first.
    """
    store, rank, world_size = next(dist.rendezvous("env://", timeout=timeout))
    part = dist.PrefixStore(f"start{attempt()}/world{next(_JOINED)}", store)
    return {"store": part, "rank": rank, "world_size": world_size}


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
    group = mesh["dp_replicate", "dp_shard"]._flatten("dp").get_group()
    let_senders_run()
    return group


def axis_group(mesh: DeviceMesh, axis: str) -> ProcessGroup | None:
    """The ranks along an axis of a mesh; None where that is one."""
    return mesh[axis].get_group() if mesh[axis].size() > 1 else None
