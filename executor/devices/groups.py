"""Meshes and groups of ranks that a process builds once, however often it asks for them.

Each group costs threads (gloo: six of a mesh's groups a rank) or memory of the GPU (an NCCL
communicator's buffers), and none of it is given back before the process leaves its world. A run
that verifies builds its plan twice, a suite dozens of times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed.device_mesh import DeviceMesh

_BUILT: dict[tuple[Any, ...], Any] = {}
"""What was built in the world that stands under the key WORLD."""
_WORLD = ("world",)


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
    """What was built under a key in this world, or is built now."""
    if _BUILT.get(_WORLD) is not dist.group.WORLD:
        _BUILT.clear()
        _BUILT[_WORLD] = dist.group.WORLD
    if key not in _BUILT:
        _BUILT[key] = build()
    return _BUILT[key]
