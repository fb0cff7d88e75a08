"""Gradients of micro-batches added up until an update takes them, wider than the weights or not.

    16-bit weights, fp32 sums    B of mb 0: grad -> fp32 sum, grad freed    B of mb 1: sum += grad

Autograd adds up in the weights' own dtype; a 16-bit gradient is widened as soon as it is complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from weakref import ReferenceType, ref

import torch
from torch import Tensor, nn

from executor.parallel.gradients.split import local_gradient

PIECE = 1 << 16
"""Values that are widened at once: 256 KiB, which a core's cache holds."""


class GradientSums:
    """The sums of some parameters' gradients, in a dtype.

    Parameters know of it weakly: Python's collector does not see what hooks refer to, so that a
    circle through one would keep parameters and sums for ever.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], dtype: torch.dtype) -> None:
        """Watch the parameters whose own dtype is another."""
        self._parameters, self._dtype = list(parameters), dtype
        self._sums: dict[int, Tensor] = {}
        here = ref(self)
        for number, parameter in enumerate(self._parameters):
            if parameter.dtype != dtype:
                parameter.register_post_accumulate_grad_hook(partial(_add_if_there, here, number))

    def take(self) -> list[Tensor]:
        """What backwards have added up, and nothing of it left."""
        parts = []
        for number, parameter in enumerate(self._parameters):
            if number in self._sums:
                parts.append(self._sums.pop(number))
            elif parameter.grad is not None:
                parts.append(local_gradient(parameter, parameter.grad))
                parameter.grad = None
        return parts

    def add(self, number: int, parameter: nn.Parameter) -> None:
        """Widen a complete gradient into its sum."""
        part = local_gradient(parameter, parameter.grad)
        if number in self._sums:
            _add_pieces(self._sums[number], part)
        else:
            self._sums[number] = part.contiguous().to(self._dtype)
        parameter.grad = None


def _add_if_there(sums: ReferenceType[GradientSums], number: int, parameter: nn.Parameter) -> None:
    """Add a gradient where its sums are still wanted."""
    if (wanted := sums()) is not None:
        wanted.add(number, parameter)


def _add_pieces(total: Tensor, part: Tensor) -> None:
    """Add in place; torch on CPU first makes a whole wide copy of what it adds from 16 bit."""
    pieces = zip(total.view(-1).split(PIECE), part.reshape(-1).split(PIECE), strict=True)
    for wide, narrow in pieces:
        wide += narrow
