"""What a rank multiplies by: its part of a parameter that ranks share, and in which dtype.

    local_tensor    without history: what is read, summed or sent
    local_part      with history: its gradient is that of the part
    copied_part     so too; where ranks have copies, gradients of each are partial sums
    stored_tensor   the very tensor that is kept (`executor.torch_internals.distributed`)

All are in the same memory as the parameter.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Partial


def local_tensor(value: Tensor) -> Tensor:
    """The part of a tensor that is on this rank, without history."""
    return local_part(value.detach())


def local_part(value: Tensor) -> Tensor:
    """The part of a tensor that is on this rank."""
    return value.to_local() if isinstance(value, DTensor) else value


def copied_part(parameter: Tensor) -> Tensor:
    """The part of a parameter that is on this rank; gradients of copies are still to be summed."""
    if not isinstance(parameter, DTensor):
        return parameter
    sums = [Partial() if where.is_replicate() else where for where in parameter.placements]
    part: Tensor = parameter.to_local(grad_placements=sums)
    return part


def product_dtype(x: Tensor) -> torch.dtype:
    """What products of x are computed in: autocast does not reach into autograd functions."""
    device = x.device.type
    if not x.is_meta and torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return x.dtype
