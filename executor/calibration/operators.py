"""How each kind of kernel is run with torch: a set of inputs, and what is called on them.

`build(case)` returns a function that makes one set of inputs and the call on it; every set is
other memory, so that a run over several sets finds its operands where training finds them: not in
the nearest cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from executor.attention import Rotary
from executor.calibration.workloads import (
    ACCUMULATE,
    BACKWARD,
    COPY,
    FORWARD,
    GEMM,
    LAUNCH,
    OPTIMIZER,
    Case,
)
from executor.loss import loss

Call = Callable[[], object]
TENSORS = 32
"""Among how many parameters an optimizer's values are divided."""


class Operators:
    """Builds calls on tensors of one device and dtype."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.device = device
        self.dtype = dtype

    def build(self, case: Case) -> Callable[[], Call]:
        """What makes one set of inputs of a case and returns the call to time."""
        if case.kind == GEMM:
            return lambda: self._product(*(int(case.shape[name]) for name in "mnk"))
        if case.kind in (FORWARD, BACKWARD):
            return lambda: self._attention(case)
        if case.kind == OPTIMIZER:
            return lambda: self._optimizer(case.sizes[0])
        if case.kind in (ACCUMULATE, COPY, LAUNCH):
            return lambda: self._flat(case.kind, case.sizes[0])
        name, _, direction = case.kind.rpartition("_")
        return lambda: self._module(name, case.sizes, forward=direction == "forward")

    def normal(self, *sizes: int) -> Tensor:
        """Normal random values: their contents change the clock of a GPU."""
        return torch.randn(*sizes, device=self.device).to(self.dtype)

    def _product(self, m: int, n: int, k: int) -> Call:
        a, b = self.normal(m, k), self.normal(n, k).t()
        return lambda: torch.mm(a, b)

    def _attention(self, case: Case) -> Call:
        batch, heads, size, causal = case.sizes
        length = int(case.shape["seq_len"])
        # (b, s, a, d) in memory, as the projections give it
        q, k, v = (self.normal(batch, length, heads, size).transpose(1, 2) for _ in range(3))

        def attend() -> Tensor:
            return F.scaled_dot_product_attention(q, k, v, is_causal=bool(causal))

        return attend if case.kind == FORWARD else _backward(attend, (q, k, v))

    def _optimizer(self, count: int) -> Call:
        """AdamW in fp32; in 16 bit of copies, which are then rounded into the weights."""
        values = [
            self.normal(count // TENSORS).float().requires_grad_(True) for _ in range(TENSORS)
        ]
        for one in values:
            one.grad = torch.randn_like(one)
        step: Call = torch.optim.AdamW(values, lr=1e-5, fused=True).step
        if self.dtype == torch.float32:
            return step
        weights = [one.detach().to(self.dtype) for one in values]

        def update() -> None:
            step()
            for weight, value in zip(weights, values, strict=True):
                weight.copy_(value.detach())

        return update

    def _flat(self, kind: str, count: int) -> Call:
        x, y = self.normal(count), self.normal(count)
        if kind == LAUNCH:
            return lambda: torch.add(x, y, out=y)
        return (lambda: y.copy_(x)) if kind == COPY else (lambda: y.add_(x))

    def _module(self, name: str, sizes: tuple[int, ...], *, forward: bool) -> Call:
        made: Mapping[str, Callable[..., tuple[Callable[[], Tensor], list[Tensor]]]] = {
            "norm": self._norm, "gelu": self._gelu, "swiglu": self._swiglu,
            "residual": self._residual, "dropout": self._dropout, "rope": self._rope,
            "transpose": self._transpose, "loss": self._loss,
        }  # fmt: skip
        call, inputs = made[name](*sizes)
        if forward:
            return call
        if name == "loss":  # runs once for each forward
            return lambda: torch.autograd.grad(call(), inputs)
        if name == "residual":  # the sum of both branches' gradients, and the bias's
            one, two = (self.normal(*sizes[:2]) for _ in range(2))
            return lambda: (one + two).sum(0) if sizes[2] == 0 else one + two
        return _backward(call, inputs)

    def _norm(self, tokens: int, width: int, rms: int) -> tuple[Callable[[], Tensor], list[Tensor]]:
        x, weight, bias = self.normal(tokens, width), self.normal(width), self.normal(width)
        if rms:
            return (lambda: F.rms_norm(x, (width,), weight)), [x, weight]
        return (lambda: F.layer_norm(x, (width,), weight, bias)), [x, weight, bias]

    def _gelu(self, tokens: int, width: int, _: int) -> tuple[Callable[[], Tensor], list[Tensor]]:
        x = self.normal(tokens, width)
        return (lambda: F.gelu(x, approximate="tanh")), [x]

    def _swiglu(self, tokens: int, width: int, _: int) -> tuple[Callable[[], Tensor], list[Tensor]]:
        x, y = self.normal(tokens, width), self.normal(tokens, width)
        return (lambda: F.silu(x) * y), [x, y]

    def _residual(
        self, tokens: int, width: int, _: int
    ) -> tuple[Callable[[], Tensor], list[Tensor]]:
        x, y = self.normal(tokens, width), self.normal(tokens, width)
        return (lambda: x + y), [x, y]

    def _dropout(
        self, tokens: int, width: int, _: int
    ) -> tuple[Callable[[], Tensor], list[Tensor]]:
        x = self.normal(tokens, width)
        return (lambda: F.dropout(x, 0.1)), [x]

    def _rope(self, tokens: int, width: int, _: int) -> tuple[Callable[[], Tensor], list[Tensor]]:
        size = 64 if width % 64 == 0 else 2
        rotary, x = Rotary(size), self.normal(1, width // size, tokens, size)
        return (lambda: rotary.rotate(x)), [x]

    def _transpose(
        self, tokens: int, width: int, _: int
    ) -> tuple[Callable[[], Tensor], list[Tensor]]:
        x = self.normal(tokens, 2, width // 2)
        return (lambda: x.transpose(0, 1).contiguous()), [x]

    def _loss(self, tokens: int, vocabulary: int) -> tuple[Callable[[], Tensor], list[Tensor]]:
        logits = self.normal(1, tokens, vocabulary).requires_grad_(True)
        targets = torch.randint(vocabulary, (1, tokens), device=self.device)
        return (lambda: loss(logits, targets)), [logits]


def _backward(forward: Callable[[], Tensor], inputs: Sequence[Tensor]) -> Call:
    for one in inputs:
        one.requires_grad_(True)
    out = forward()
    grad = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, inputs, grad, retain_graph=True)
