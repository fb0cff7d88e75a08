"""Tensors that are split over tensor ranks: partial sums and wholes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from executor.model.factors import local_tensor


def partial_group(parameter: nn.Parameter, grad: Tensor) -> dist.ProcessGroup | None:
    """The tensor ranks over which a gradient is still to be summed, if it is.

    Under sequence parallelism the gradient of a norm comes out of backward as partial sums, and so
    does that of a key-value head which several ranks hold.
    """
    if not isinstance(grad, DTensor) or not isinstance(parameter, DTensor):
        return None
    for dim, (have, want) in enumerate(zip(grad.placements, parameter.placements, strict=True)):
        if have.is_partial() and want.is_replicate():
            return grad.device_mesh.get_group(dim)
    return None


def local_gradient(parameter: nn.Parameter, grad: Tensor) -> Tensor:
    """This rank's part of a gradient, split as the parameter is; partial sums stay as they are."""
    split = isinstance(grad, DTensor) and isinstance(parameter, DTensor)
    if split and partial_group(parameter, grad) is None:
        grad = grad.redistribute(placements=parameter.placements)
    return local_tensor(grad)


def sum_partial(tensors: Sequence[tuple[Tensor, dist.ProcessGroup]]) -> None:
    """Sum tensors of one dtype, each over its group, in place, in one collective a group."""
    by_group: dict[dist.ProcessGroup, list[Tensor]] = {}
    for tensor, group in tensors:
        by_group.setdefault(group, []).append(tensor)
    for group, alike in by_group.items():
        _sum_flat(alike, group)


def _sum_flat(tensors: Sequence[Tensor], group: dist.ProcessGroup) -> None:
    flat = flattened(tensors)
    dist.all_reduce(flat, group=group)
    copy_apart(flat, tensors)


def flattened(tensors: Sequence[Tensor]) -> Tensor:
    """Copies of tensors of one dtype, one behind the other in one vector."""
    return torch.cat([tensor.flatten() for tensor in tensors])


def copy_apart(flat: Tensor, tensors: Sequence[Tensor]) -> None:
    """Copy what stands in a vector one behind the other back into the tensors."""
    sizes = [tensor.numel() for tensor in tensors]
    for tensor, part in zip(tensors, flat.split(sizes), strict=True):
        tensor.copy_(part.view_as(tensor))


def like_parameter(parameter: nn.Parameter, local: Tensor) -> Tensor:
    """A local tensor as what the parameter is: split over tensor ranks in the same way, or not."""
    if not isinstance(parameter, DTensor):
        return local
    return DTensor.from_local(
        local,
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )


def whole_tensor(value: Tensor) -> Tensor:
    """The whole of a split tensor; on all its ranks at once."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def finish_partial(module: nn.Module) -> None:
    """Split gradients as their parameters are; sum the partial ones, in a collective a group."""
    split = [
        parameter
        for parameter in module.parameters()
        if isinstance(parameter.grad, DTensor) and parameter.grad.placements != parameter.placements
    ]
    grads = [local_gradient(parameter, parameter.grad) for parameter in split]
    groups = [partial_group(parameter, parameter.grad) for parameter in split]
    pairs = zip(grads, groups, strict=True)
    sum_partial([(grad, group) for grad, group in pairs if group is not None])
    for parameter, grad in zip(split, grads, strict=True):
        parameter.grad = like_parameter(parameter, grad)
