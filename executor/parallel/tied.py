"""The token table that the first and the last stage of a pipeline both hold a copy of."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from executor.devices.groups import subgroup
from executor.parallel.data import Replica
from parsim.schedule import Schedule


def tied_group(mesh: DeviceMesh, schedule: Schedule) -> dist.ProcessGroup | None:
    """The group of this rank and the one with the other copy; None on ranks between the ends.

    None also where one rank holds both ends. To be called on all ranks at once: it may need a group
    for each pair of ranks.
    """
    owners = [schedule.stage_rank[0], schedule.stage_rank[-1]]
    if owners[0] == owners[1]:
        return None
    if mesh["pp"].size() == 2:
        return mesh["pp"].get_group()
    pairs = mesh.mesh[owners].flatten(1).t().tolist()
    return subgroup(pairs)


@torch.no_grad()  # type: ignore[untyped-decorator]
def sum_tied_gradients(replicas: Sequence[Replica], group: dist.ProcessGroup | None) -> None:
    """Give both copies the sum of their averaged gradients, after `Replica.finish`.

    In place: no copy of the table is made. A sum of two does not depend on their order, so the
    copies stay equal to the bit.
    """
    gradients = [gradient for replica in replicas for gradient in replica.tied_gradients()]
    if len(gradients) == 2:
        first, last = gradients
        first.add_(last)
        last.copy_(first)
    elif gradients:
        flat = gradients[0].contiguous()
        dist.all_reduce(flat, group=group)
        if flat is not gradients[0]:
            gradients[0].copy_(flat)
