"""Parameters that two ranks of a pipeline hold, and the sums of their gradients.

    a tied table       rank 0 as embedding,  rank pp - 1 as output projection
    a pipeline that    rank r                rank pp - 1 - r
    runs both ways     stage r of copy 0     stage r of copy 1
                       stage pp - 1 - r of 1 stage pp - 1 - r of 0

Each adds up the gradients of its own micro-batches, averaged over its replicas; behind the last
action two ranks take the sum. In place: no copy is made. A sum of two does not depend on their
order, so that equal parameters stay equal to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from executor.devices.mesh import subgroup
from executor.parallel.replica import Replica
from parsim.schedule import Schedule


def tied_group(mesh: DeviceMesh, schedule: Schedule) -> dist.ProcessGroup | None:
    """The group of this rank and the one with the other copy; None on ranks between the ends.

    None also where one rank holds both ends. To be called on all ranks at once: it may need a group
    for each pair of ranks.
    """
    owners = [schedule.stage_rank[0], schedule.stage_rank[-1]]
    return None if owners[0] == owners[1] else _group_of(mesh, [owners])


def copies_group(mesh: DeviceMesh, schedule: Schedule) -> dist.ProcessGroup | None:
    """The group of this rank and the one with copies of its stages; None with one copy.

    To be called on all ranks at once.
    """
    return _opposite(mesh, schedule) if schedule.copies > 1 else None


def partners_group(mesh: DeviceMesh, schedule: Schedule) -> dist.ProcessGroup | None:
    """The group of this rank and the one that keeps its activations, or whose it keeps.

    To be called on all ranks at once.
    """
    return _opposite(mesh, schedule) if schedule.moves else None


def _opposite(mesh: DeviceMesh, schedule: Schedule) -> dist.ProcessGroup | None:
    """The group of this rank and the one as far from the pipeline's other end."""
    return _group_of(mesh, [[rank, schedule.pp - 1 - rank] for rank in range(schedule.pp // 2)])


def _group_of(mesh: DeviceMesh, pairs: Sequence[Sequence[int]]) -> dist.ProcessGroup | None:
    """This rank's group among groups of two pipeline ranks each, in every pipeline."""
    if mesh["pp"].size() == 2:
        return mesh["pp"].get_group()
    ranks = [pair for two in pairs for pair in mesh.mesh[list(two)].flatten(1).t().tolist()]
    return subgroup(ranks)


@torch.no_grad()  # type: ignore[untyped-decorator]
def sum_copies(replicas: Sequence[Replica], group: dist.ProcessGroup | None) -> None:
    """Give both copies of all stages the sum of their gradients, after `Replica.finish`.

    `replicas` are a rank's stages by their place in the model, which is the same on both ranks.
    """
    if group is None:
        return
    sums = [(part, part.contiguous()) for part in gradient_parts(replicas)]
    started = [dist.all_reduce(flat, group=group, async_op=True) for _, flat in sums]
    for work, (part, flat) in zip(started, sums, strict=True):
        work.wait()
        if flat is not part:
            part.copy_(flat)


def gradient_parts(replicas: Sequence[Replica]) -> list[Tensor]:
    """What this rank holds of the gradients of some stages: a tensor for each of the sums."""
    return [part for replica in replicas for part in replica.held_gradients()]


@torch.no_grad()  # type: ignore[untyped-decorator]
def sum_tied_gradients(replicas: Sequence[Replica], group: dist.ProcessGroup | None) -> None:
    """Give both copies of a table the sum of their averaged gradients, after `Replica.finish`."""
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
