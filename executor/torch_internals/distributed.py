"""Collectives and distributed tensors of torch under names that every supported version has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch.distributed as dist
from torch.distributed import _functional_collectives
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

# torch 2.13 gave both a new name and warns about the old one, the only one in 2.11
ALL_GATHER: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
REDUCE_SCATTER: Any = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

WAITS: tuple[tuple[Any, str], ...] = (
    (dist.Work, "wait"),
    (_functional_collectives, "wait_tensor"),
)
"""What Python calls to wait for communication; only DistributedDataParallel waits in C++."""


def replicate_module() -> type | None:
    """The class of modules made by `replicate` on top of FSDP2; None where torch has none."""
    try:
        from torch.distributed._composable.replicate_with_fsdp import ReplicateModule
    except ImportError:
        return None
    module_type: type = ReplicateModule
    return module_type


def stored_tensor(parameter: Any) -> Any:  # noqa: ANN401 - torch has no types here
    """The very tensor that a parameter keeps its local values in; `to_local` gives another one."""
    return parameter._local_tensor if isinstance(parameter, DTensor) else parameter


def unfolded(mesh: DeviceMesh, sizes: Sequence[int], names: Sequence[str]) -> DeviceMesh:
    """A mesh of one dim as one of several over the same ranks; on all ranks of its root at once."""
    return mesh._unflatten(0, tuple(sizes), tuple(names))


def root_of(mesh: DeviceMesh) -> DeviceMesh:
    """The mesh that a mesh was taken from, or itself."""
    return mesh._get_root_mesh()


def missing_parts() -> Iterator[str]:
    """What this torch lacks of waits that can be watched and of split tensors."""
    for owner, name in WAITS:
        if not hasattr(owner, name):
            yield f"{owner.__name__} lacks {name}"
    for name in ("_unflatten", "_get_root_mesh"):
        if not hasattr(DeviceMesh, name):
            yield f"DeviceMesh lacks {name}"
    if "_local_tensor" not in getattr(DTensor, "__slots__", ()):
        yield "DTensor lacks _local_tensor"
