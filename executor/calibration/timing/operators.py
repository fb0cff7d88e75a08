"""How each kind of kernel is run with torch: a set of inputs, and what is called on them.

`build(case)` returns a function that makes one set of inputs and the call on it; every set is
other memory, so that a run over several sets finds its operands where training finds them: not in
the nearest cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isqrt
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from executor.calibration.cases import kinds
from executor.calibration.cases.networks import DIRECTIONS, convolution_of
from executor.calibration.cases.workloads import TimedCase
from executor.model.adapters import SCALE
from executor.model.attention.rotary import Rotary
from executor.model.blocks import capped
from executor.model.loss import cross_entropy
from executor.training.norm import scale_down, square_sum


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


def convolution_call(draws: Draws, case: TimedCase) -> Call:
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


Call = Callable[[], object]
Graph = tuple[Callable[[], Tensor], list[Tensor]]
"""A forward call, and the inputs that its backward gives gradients to."""
POINTWISE: Mapping[str, tuple[int, Callable[..., Tensor]]] = {
    "gelu": (1, lambda x: F.gelu(x, approximate="tanh")),
    "swiglu": (2, lambda x, y: F.silu(x) * y),
    "residual": (2, torch.add),
    "dropout": (1, lambda x: F.dropout(x, 0.1)),
    "scale": (1, lambda x: x * 1.5),
    "cap": (1, lambda x: capped(x, 30.0)),
    "summed": (2, lambda x, low: x + low * SCALE),
}
"""Number of inputs, and what is done with them."""
TENSORS = 32
"""Among how many parameters an optimizer's values are divided."""


class Operators:
    """Builds calls on tensors of one device and dtype."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.device = device
        self.dtype = dtype

    def build(self, case: TimedCase) -> Callable[[], Call]:
        """What makes one set of inputs of a case and returns the call to time."""
        if case.kind == kinds.GEMM:
            return lambda: self._product(case)
        if case.kind in (kinds.FORWARD, kinds.BACKWARD):
            return lambda: self._attention(case)
        if case.kind in (kinds.NORM, kinds.CLIP):
            return lambda: self._gradients(case.kind, case.sizes[0])
        if case.kind == kinds.OPTIMIZER:
            return lambda: self._optimizer(case.sizes[0])
        if case.kind in (kinds.ACCUMULATE, kinds.COPY, kinds.LAUNCH):
            return lambda: self._flat(case.kind, case.sizes[0])
        if case.kind in kinds.CONVOLUTIONS:
            return lambda: convolution_call(self, case)
        name, _, direction = case.kind.rpartition("_")
        if name in kinds.PASSES:
            return lambda: pass_call(self, name, case.sizes, forward=direction == "forward")
        return lambda: self._module(name, case.sizes, forward=direction == "forward")

    def normal(self, *sizes: int) -> Tensor:
        """Normal random values: their contents change the clock of a GPU."""
        return torch.randn(*sizes, device=self.device).to(self.dtype)

    def _product(self, case: TimedCase) -> Call:
        """Y = X W^T, dX = dY W, or dW = dY^T X, each of tensors as training has them in memory."""
        m, n, k = (int(case.shape[name]) for name in "mnk")
        which = case.sizes[0] if case.sizes else kinds.OUTPUT
        if which == kinds.WEIGHT_GRADIENT:
            a, b = self.normal(k, n).t(), self.normal(k, m)
        elif which == kinds.INPUT_GRADIENT:
            a, b = self.normal(m, k), self.normal(k, n)
        else:
            a, b = self.normal(m, k), self.normal(n, k).t()
        return lambda: torch.mm(a, b)

    def _attention(self, case: TimedCase) -> Call:
        batch, heads, size, causal = case.sizes
        length = int(case.shape["seq_len"])
        # (b, s, a, d) in memory, as the projections give it
        q, k, v = (self.normal(batch, length, heads, size).transpose(1, 2) for _ in range(3))

        def attend() -> Tensor:
            return F.scaled_dot_product_attention(q, k, v, is_causal=bool(causal))

        return attend if case.kind == kinds.FORWARD else _backward(attend, (q, k, v))

    def _optimizer(self, count: int) -> Call:
        """AdamW in fp32; in 16 bit of copies, which are then rounded into the weights."""
        values = [
            self.normal(count // TENSORS).float().requires_grad_(True) for _ in range(TENSORS)
        ]
        for value in values:
            value.grad = torch.randn_like(value)
        step: Call = torch.optim.AdamW(values, lr=1e-5, fused=True).step
        if self.dtype == torch.float32:
            return step
        weights = [value.detach().to(self.dtype) for value in values]

        def update() -> None:
            step()
            for weight, value in zip(weights, values, strict=True):
                weight.copy_(value.detach())

        return update

    def _gradients(self, kind: str, count: int) -> Call:
        """Their norm, which clipping needs and finds them in the caches behind; fp32."""
        values = [self.normal(count // TENSORS).float() for _ in range(TENSORS)]
        if kind == kinds.NORM:
            return lambda: square_sum(values)
        return lambda: scale_down(values, square_sum(values).sqrt(), 1.0)

    def _flat(self, kind: str, count: int) -> Call:
        x, y = self.normal(count), self.normal(count)
        if kind == kinds.LAUNCH:
            return lambda: torch.add(x, y, out=y)
        return (lambda: y.copy_(x)) if kind == kinds.COPY else (lambda: y.add_(x))

    def _module(self, name: str, sizes: tuple[int, ...], *, forward: bool) -> Call:
        if name in ("residual", "copied") and not forward:
            return self._sum(*sizes[:2], biased=name == "residual" and sizes[2] == 0)
        call, inputs = self._graph(name, *sizes)
        if forward:
            return call
        if name == "loss":  # runs once for each forward
            return lambda: torch.autograd.grad(call(), inputs)
        return _backward(call, inputs)

    def _sum(self, tokens: int, width: int, *, biased: bool) -> Call:
        """Sum the gradients of two branches (of a map and its adapter), and the bias's."""
        left, right = (self.normal(tokens, width) for _ in range(2))
        return lambda: (left + right).sum(0) if biased else left + right

    def _graph(self, name: str, tokens: int, width: int, rms: int = 0) -> Graph:
        if name == "norm":
            return self._norm(tokens, width, rms)
        if name in POINTWISE:
            return self._pointwise(name, tokens, width)
        builders = {"rope": self._rope, "transpose": self._transpose, "loss": self._loss}
        return builders[name](tokens, width)

    def _pointwise(self, name: str, tokens: int, width: int) -> Graph:
        """A kernel that takes each value of its inputs for itself."""
        count, function = POINTWISE[name]
        inputs = [self.normal(tokens, width) for _ in range(count)]
        return (lambda: function(*inputs)), inputs

    def _norm(self, tokens: int, width: int, rms: int) -> Graph:
        x, weight, bias = self.normal(tokens, width), self.normal(width), self.normal(width)
        if rms:
            return (lambda: F.rms_norm(x, (width,), weight)), [x, weight]
        return (lambda: F.layer_norm(x, (width,), weight, bias)), [x, weight, bias]

    def _rope(self, tokens: int, width: int) -> Graph:
        size = 64 if width % 64 == 0 else 2
        rotary, x = Rotary(torch.ones(size // 2)), self.normal(1, width // size, tokens, size)
        return (lambda: rotary.rotate(x)), [x]

    def _transpose(self, tokens: int, width: int) -> Graph:
        x = self.normal(tokens, 2, width // 2)
        return (lambda: x.transpose(0, 1).contiguous()), [x]

    def _loss(self, tokens: int, vocabulary: int) -> Graph:
        logits = self.normal(1, tokens, vocabulary).requires_grad_(True)
        targets = torch.randint(vocabulary, (1, tokens), device=self.device)
        return (lambda: cross_entropy(logits, targets)), [logits]


def _backward(forward: Callable[[], Tensor], inputs: Sequence[Tensor]) -> Call:
    for tensor in inputs:
        tensor.requires_grad_(True)
    out = forward()
    grad = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, inputs, grad, retain_graph=True)
