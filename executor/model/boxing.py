"""Changes of a tensor's layout on one axis of a mesh, and their duals for gradients.

    S -> B   all-gather        P -> S   reduce-scatter       B -> S   this device's slice
    P -> B   all-reduce        S -> S   all-to-all           S -> P   zeros around the slice
                                                             B -> P   the first device's, else zeros

Of several tensors that are `joined` side by side in a dimension each is cut by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from executor.torch_internals.distributed import REDUCE_SCATTER
from parsim.layout.laid import Boxing
from parsim.layout.mesh import NdSbp, Sbp


@dataclass(frozen=True, slots=True)
class Axis:
    """The devices of an axis that this one is among: how many, its index, their group."""

    size: int
    index: int
    group: dist.ProcessGroup | None


Joined = Mapping[int, int]
"""Dimensions in which several tensors stand side by side, and how many."""


def pieces(x: Tensor, dim: int, count: int, joined: int = 1) -> list[Tensor]:
    """A tensor cut into equal parts along a dimension."""
    if joined == 1:
        return list(x.chunk(count, dim))
    wide = x.unflatten(dim, (joined, -1)).chunk(count, dim + 1)
    return [part.flatten(dim, dim + 1) for part in wide]


def united(parts: Sequence[Tensor], dim: int, joined: int = 1) -> Tensor:
    """The tensor of which these are the parts."""
    if joined == 1:
        return torch.cat(list(parts), dim)
    wide = [part.unflatten(dim, (joined, -1)) for part in parts]
    return torch.cat(wide, dim + 1).flatten(dim, dim + 1)


def cut(
    whole: Tensor, layout: NdSbp, places: Sequence[int], sizes: Sequence[int], joined: Joined
) -> Tensor:
    """What a device at these places of the axes has of a tensor."""
    for part, index, size in zip(layout, places, sizes, strict=True):
        if part.splits:
            whole = pieces(whole, part.dim, size, joined.get(part.dim, 1))[index]
    return whole


def assembled(parts: Mapping[tuple[int, ...], Tensor], layout: NdSbp, joined: Joined) -> Tensor:
    """The tensor that devices have by their places; of copies that of the first index."""
    for axis in reversed(range(len(layout))):
        rows: dict[tuple[int, ...], list[Tensor]] = {}
        for places in sorted(parts):
            rows.setdefault(places[:axis], []).append(parts[places])
        part = layout[axis]
        parts = {
            places: united(row, part.dim, joined.get(part.dim, 1)) if part.splits else row[0]
            for places, row in rows.items()
        }
    return parts[()]


def changed(x: Tensor, source: Sbp, target: Sbp, axis: Axis, joined: Joined) -> Tensor:
    """A device's part of a tensor in another layout; every device of the axis calls it."""
    if source == target or axis.size == 1:
        return x
    if target.kind == "P":
        return _summand(x, source, axis, joined)
    if source.kind == "P":
        return _summed(x, target, axis, joined)
    if source.kind == "B":
        return _part(x, target, axis, joined).contiguous()
    if target.kind == "B":
        parts = [torch.empty_like(x) for _ in range(axis.size)]
        dist.all_gather(parts, x.contiguous(), group=axis.group)
        return united(parts, source.dim, joined.get(source.dim, 1))
    sent = torch.stack(pieces(x, target.dim, axis.size, joined.get(target.dim, 1)))
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent, group=axis.group)
    return united(received.unbind(), source.dim, joined.get(source.dim, 1))


def _part(x: Tensor, target: Sbp, axis: Axis, joined: Joined) -> Tensor:
    return pieces(x, target.dim, axis.size, joined.get(target.dim, 1))[axis.index]


def _summand(x: Tensor, source: Sbp, axis: Axis, joined: Joined) -> Tensor:
    """What this device adds to a sum that is a tensor which it has, or a slice of."""
    if source.kind == "B":
        return x if axis.index == 0 else torch.zeros_like(x)
    parts = [torch.zeros_like(x) for _ in range(axis.size)]
    parts[axis.index] = x
    return united(parts, source.dim, joined.get(source.dim, 1))


def _summed(x: Tensor, target: Sbp, axis: Axis, joined: Joined) -> Tensor:
    """The sum over the devices, or this one's part of it."""
    if target.kind == "B":
        total = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=axis.group)
        return total
    parts = pieces(x, target.dim, axis.size, joined.get(target.dim, 1))
    rows, mine = torch.cat(parts), torch.empty_like(parts[0], memory_format=torch.contiguous_format)
    REDUCE_SCATTER(mine, rows, group=axis.group)
    return mine


class _Changed(torch.autograd.Function):  # type: ignore[misc]  # torch has no types here
    """A change of layout, whose gradient is changed from and to the duals."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch has no type for it
        x: Tensor,
        source: Sbp,
        target: Sbp,
        axis: Axis,
        joined: Joined,
    ) -> Tensor:
        ctx.step = source, target, axis, joined
        return changed(x, source, target, axis, joined).clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:  # noqa: ANN401
        source, target, axis, joined = ctx.step
        return changed(grad, target.dual, source.dual, axis, joined), None, None, None, None


class Change(nn.Module):  # type: ignore[misc]
    """A step of a change of layout, as a module of a device's graph."""

    def __init__(self, op: Boxing) -> None:
        super().__init__()
        self.step, self.joined = op.step, op.joined
        self.axis = Axis(1, 0, None)

    def forward(self, x: Tensor) -> Tensor:
        """This device's part behind the step."""
        joined = {x.dim() - 1: self.joined}
        step = self.step
        if not x.requires_grad:
            return changed(x, step.source, step.target, self.axis, joined)
        y: Tensor = _Changed.apply(x, step.source, step.target, self.axis, joined)
        return y
