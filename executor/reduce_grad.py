"""Data parallelism for pipeline stages: one all-reduce per stage, started at REDUCE_GRAD.

It runs beside the rest of the schedule and is waited for at the end of the step. Unlike
DistributedDataParallel it needs no autograd hooks, so it is right with split backwards too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import torch
import torch.distributed as dist
from torch import nn

Launched = Callable[[int, dist.Work], None]


class ActionLike(Protocol):
    """What is used of torch's actions here."""

    stage_index: int


class GradReducer:
    """Averages the gradients of each stage over a group, a flat buffer per stage and dtype.

    The buffers are as large as the gradients and live from the stage's REDUCE_GRAD to the end of
    the step. `on_launch` is called with each stage and its last piece of work, if it is set.
    """

    def __init__(self, stages: Mapping[int, nn.Module], group: dist.ProcessGroup) -> None:
        self.on_launch: Launched | None = None
        self._stages = stages
        self._group = group
        self._size = dist.get_world_size(group)
        self._pending: list[tuple[dist.Work, torch.Tensor, list[torch.Tensor]]] = []

    def launch(self, action: ActionLike, context: object) -> None:
        """Start averaging one stage; has the form of the runtime's custom functions."""
        del context
        work: dist.Work | None = None
        for grads in _by_dtype(self._stages[action.stage_index].parameters()):
            flat = torch.cat([grad.flatten() for grad in grads]).div_(self._size)
            work = dist.all_reduce(flat, group=self._group, async_op=True)
            self._pending.append((work, flat, grads))
        if self.on_launch is not None and work is not None:
            self.on_launch(action.stage_index, work)

    def finish(self) -> None:
        """Wait for all stages and write the averages into the gradients."""
        for work, flat, grads in self._pending:
            work.wait()
            for grad, mean in zip(grads, flat.split([g.numel() for g in grads]), strict=True):
                grad.copy_(mean.view_as(grad))
        self._pending.clear()


def _by_dtype(parameters: Iterable[nn.Parameter]) -> list[list[torch.Tensor]]:
    """The local gradients in the parameters' order, one list per dtype.

    A trainable parameter without gradient gets zeros: its peers may have one, and all must send
    the same number of values.
    """
    found: dict[torch.dtype, list[torch.Tensor]] = {}
    for parameter in parameters:
        if not parameter.requires_grad:
            continue
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        grad = parameter.grad
        local = grad.to_local() if hasattr(grad, "to_local") else grad
        found.setdefault(local.dtype, []).append(local.detach())
    return list(found.values())
