"""The token table that the first and the last stage of a pipeline both hold a copy of."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from executor.parallel.data import Replica


class TiedTable:
    """Sums the gradients of both copies; `owners` are the pipeline ranks that hold them.

    To be built on all ranks at once: it may need a group for each pair of ranks.
    """

    def __init__(self, mesh: DeviceMesh, owners: tuple[int, int]) -> None:
        self.group = _pair_group(mesh, owners) if owners[0] != owners[1] else None

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def sum_gradients(self, replicas: Sequence[Replica]) -> None:
        """Give both copies the sum of their averaged gradients, after `Replica.finish`.

        In place: no copy of the table is made. A sum of two does not depend on their order, so the
        copies stay equal to the bit.
        """
        held = [gradient for replica in replicas for gradient in replica.tied_gradients()]
        if len(held) == 2:
            first, last = held
            first.add_(last)
            last.copy_(first)
        elif held:
            _all_reduce(held[0], self.group)


def _pair_group(mesh: DeviceMesh, owners: tuple[int, int]) -> dist.ProcessGroup | None:
    """The group of this rank and the one with the other copy; None on ranks between the ends."""
    if mesh["pp"].size() == 2:
        return mesh["pp"].get_group()
    pairs = mesh.mesh[list(owners)].flatten(1).t().tolist()
    return dist.new_subgroups_by_enumeration(pairs)[0]


def _all_reduce(value: Tensor, group: dist.ProcessGroup | None) -> None:
    if value.is_contiguous():
        dist.all_reduce(value, group=group)
        return
    flat = value.contiguous()
    dist.all_reduce(flat, group=group)
    value.copy_(flat)
