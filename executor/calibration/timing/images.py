"""How kernels of networks of images are run: convolutions by direction, passes over tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isqrt
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from executor.calibration.cases.networks import DIRECTIONS, convolution_of
from executor.calibration.cases.workloads import Case

Call = Callable[[], object]


class Draws(Protocol):
    """Makes tensors of the device and dtype that is calibrated."""

    def normal(self, *sizes: int) -> Tensor:
        """Normal random values."""
        ...


PASS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "maxpool": lambda x: F.max_pool2d(x, 2, 2),
    "avgpool": lambda x: F.avg_pool2d(x, 2, 2),
}
"""What is done to a tensor (images, channels, rows, columns); pools have windows of 2."""


def convolution_call(draws: Draws, case: Case) -> Call:
    """One direction of a convolution, in the layout that training has here: channels first."""
    op, images = convolution_of(case.shape)
    x = draws.normal(images, op.channels, *op.image_in)
    weight = draws.normal(op.outputs, op.channels // op.groups, *op.window)
    padding = [
        max(((out - 1) * stride + window - size + 1) // 2, 0)
        for out, stride, window, size in zip(
            op.image_out, op.stride, op.window, op.image_in, strict=True
        )
    ]
    stride = list(op.stride)
    if DIRECTIONS[case.kind] == "forward":
        return lambda: F.conv2d(x, weight, None, stride, padding, 1, op.groups)
    gradient = draws.normal(images, op.outputs, *op.image_out)
    data = DIRECTIONS[case.kind] == "data"
    wanted = [data, not data, False]
    return lambda: torch.ops.aten.convolution_backward(
        gradient, x, weight, None, stride, padding, [1, 1], False, [0, 0], op.groups, wanted
    )


def pass_call(draws: Draws, name: str, sizes: tuple[int, ...], *, forward: bool) -> Call:
    """A pass over images of so many values a channel, or its backward."""
    images, values, channels = sizes
    edge = max(isqrt(values), 2)
    x = draws.normal(images, channels, edge, max(values // edge, 2))
    scale, shift = draws.normal(channels), draws.normal(channels)
    inputs = [x, scale, shift] if name == "batchnorm" else [x]
    other = torch.empty_like(x).copy_(x) if name == "add" else x

    def call() -> Tensor:
        if name == "batchnorm":
            return F.batch_norm(x, None, None, scale, shift, training=True)
        if name == "add":
            return x + other
        return PASS[name](x)

    if forward:
        return call
    for tensor in inputs:
        tensor.requires_grad_(True)
    out = call()
    gradient = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, inputs, gradient, retain_graph=True)
