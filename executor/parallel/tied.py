"""The token table that the first and the last stage of a pipeline both hold a copy of."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from executor.module import Stage
from executor.parallel.buckets import local_tensor


@torch.no_grad()  # type: ignore[untyped-decorator]
def sum_tied_gradients(stages: Sequence[Stage], mesh: DeviceMesh, owners: tuple[int, int]) -> None:
    """Give both copies the sum of their gradients; to be called before `Replica.finish`.

    `owners` are the pipeline ranks of the first and of the last stage. Each sends the other its
    gradient. A sum of two does not depend on their order, so the copies stay equal to the bit.
    """
    copies = [copy for stage in stages for copy in stage.tied_parameters()]
    if len(copies) == 2:
        first, last = (local_tensor(_gradient(copy)) for copy in copies)
        first.add_(last)
        last.copy_(first)
    elif copies:
        mine = local_tensor(_gradient(copies[0]))
        here = mesh["pp"].get_local_rank()
        mine.add_(_exchanged(mine, owners[0] if here == owners[1] else owners[1], mesh))


def _gradient(copy: nn.Parameter) -> Tensor:
    if copy.grad is None:
        copy.grad = torch.zeros_like(copy)
    return copy.grad


def _exchanged(mine: Tensor, other: int, mesh: DeviceMesh) -> Tensor:
    group = mesh["pp"].get_group()
    theirs = torch.empty_like(mine, memory_format=torch.contiguous_format)
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, mine.contiguous(), group=group, group_peer=other),
            dist.P2POp(dist.irecv, theirs, group=group, group_peer=other),
        ]
    )
    for work in works:
        work.wait()
    return theirs
