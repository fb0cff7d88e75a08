"""Products of rows that are sorted by expert with a matrix for each expert, and the activation.

Autograd functions, so that no more is kept than `parsim.cost.layer.kept.activations.expert_bytes`
counts, and each expert's weight gradient is written once, in its place of the gradient of all.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from executor.devices.accelerator import accelerator
from executor.torch_internals.kernels import GROUPED_MM


class Counts:
    """How many rows each expert has, (E,), of `total`; the host asks the device only if it must.

    Where tensors have no values (meta), the rows are spread evenly.
    """

    def __init__(self, values: Tensor, total: int) -> None:
        self.values, self.total = values, total
        self._listed: list[int] | None = None

    def listed(self) -> list[int]:
        """The counts as numbers of the host, which waits for the device."""
        if self._listed is None:
            meta = self.values.is_meta
            self._listed = _even(self.total, len(self.values)) if meta else self.values.tolist()
        return self._listed

    def ends(self) -> Tensor:
        """Where each expert's rows end, on the device."""
        return self.values.cumsum(0).to(torch.int32)

    def repeat(self, values: Tensor) -> Tensor:
        """Each expert's values (E, n) for each of its rows, (R, n)."""
        if values.is_meta:
            return values.new_empty(self.total, values.shape[1])
        return values.repeat_interleave(self.values, 0, output_size=self.total)


def _even(total: int, parts: int) -> list[int]:
    each, more = divmod(total, parts)
    return [each + (index < more) for index in range(parts)]


def grouped(rows: Tensor, weights: Tensor, counts: Counts) -> Tensor:
    """Y_e = X_e W_e^T for each expert e: rows (R, k), weights (E, n, k), R_e its count."""
    result: Tensor = _Grouped.apply(rows, weights, counts)
    return result


class _Grouped(torch.autograd.Function):  # type: ignore[misc]  # torch has no types here
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weights: Tensor, counts: Counts) -> Tensor:  # noqa: ANN401
        ctx.counts = counts
        kept = rows if ctx.needs_input_grad[1] else None  # frozen weights need none of them
        ctx.save_for_backward(kept, weights)
        return _by_inputs(rows, weights.transpose(1, 2), counts)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:  # noqa: ANN401
        rows, weights = ctx.saved_tensors
        inward = _by_inputs(grad, weights, ctx.counts) if ctx.needs_input_grad[0] else None
        outward = _by_weights(grad, rows, ctx.counts) if ctx.needs_input_grad[1] else None
        return inward, outward, None


def _by_inputs(rows: Tensor, matrices: Tensor, counts: Counts) -> Tensor:
    """X_e M_e for each expert e: rows (R, k), matrices (E, k, n)."""
    if in_one_launch(rows, matrices.shape[2]):
        return _grouped_mm(rows, matrices, counts)
    out, sizes = rows.new_empty(rows.shape[0], matrices.shape[2]), counts.listed()
    _multiply(rows.split(sizes), matrices, out.split(sizes))
    return out


def _by_weights(grad: Tensor, rows: Tensor, counts: Counts) -> Tensor:
    """dY_e^T X_e for each expert e, (E, n, k): of no rows zeros."""
    if in_one_launch(rows, grad.shape[1]):
        out = _grouped_mm(grad.t(), rows, counts)
        # the kernel's sum over nothing may be left unwritten
        return out.masked_fill_((counts.values == 0).view(-1, 1, 1), 0.0)
    sizes = counts.listed()
    out = rows.new_empty(len(sizes), grad.shape[1], rows.shape[1])
    _multiply([part.t() for part in grad.split(sizes)], rows.split(sizes), out)
    return out


def _multiply(lefts: Iterable[Tensor], rights: Iterable[Tensor], outs: Iterable[Tensor]) -> None:
    """One product for each expert, written in place."""
    for left, right, out in zip(lefts, rights, outs, strict=True):
        torch.mm(left, right, out=out)


def in_one_launch(rows: Tensor, other_width: int) -> bool:
    """Whether torch has one kernel for all experts: bf16 on GPUs of compute capability 8 and more.

    Rows of `other_width` are those of the other operand, or of the result; both are to be aligned.
    Elsewhere its fallback is the loop over experts that is written here.
    """
    unaligned = rows.shape[1] % ALIGNED or other_width % ALIGNED
    if rows.is_meta or rows.dtype != torch.bfloat16 or unaligned:
        return False
    return accelerator(rows.device).grouped_products()


ALIGNED = 8
"""bf16 values in 16 bytes, to which the kernel wants rows aligned."""


def _grouped_mm(left: Tensor, right: Tensor, counts: Counts) -> Tensor:
    out: Tensor = GROUPED_MM(left, right, offs=counts.ends())
    return out


def activated(inner: Tensor, weights: Tensor, *, gated: bool) -> Tensor:
    """Activation of (R, f), or of gate and value (R, 2 f), times the weight (R,) of each row.

    SiLU(gate) * value, or GELU (tanh) without a gate. Kept are the inputs alone.
    """
    result: Tensor = _Activated.apply(inner, weights, gated)
    return result


class _Activated(torch.autograd.Function):  # type: ignore[misc]  # torch has no types here
    @staticmethod
    def forward(ctx: Any, inner: Tensor, weights: Tensor, gated: bool) -> Tensor:  # noqa: ANN401
        ctx.gated = gated
        ctx.save_for_backward(inner, weights)
        return _activation(inner, gated).mul_(weights.to(inner.dtype).unsqueeze(1))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:  # noqa: ANN401
        inner, weights = ctx.saved_tensors
        by_weight = (_activation(inner, ctx.gated) * grad).sum(1, dtype=weights.dtype)
        grad = grad * weights.to(grad.dtype).unsqueeze(1)
        if not ctx.gated:
            inward = torch.ops.aten.gelu_backward(grad, inner, approximate="tanh")
            return inward, by_weight, None
        gate, value = inner.chunk(2, dim=1)
        inward = torch.empty_like(inner)
        by_gate, by_value = inward.chunk(2, dim=1)
        torch.mul(grad, F.silu(gate), out=by_value)
        by_gate.copy_(torch.ops.aten.silu_backward(grad.mul_(value), gate))
        return inward, by_weight, None


def _activation(inner: Tensor, gated: bool) -> Tensor:
    if not gated:
        return F.gelu(inner, approximate="tanh")
    gate, value = inner.chunk(2, dim=1)
    return F.silu(gate).mul_(value)


def summed(rows: Tensor, tokens: Tensor, count: int) -> Tensor:
    """The sum of the rows (R, h) of each of `count` tokens; row i belongs to tokens[i]."""
    result: Tensor = _Summed.apply(rows, tokens, count)
    return result


class _Summed(torch.autograd.Function):  # type: ignore[misc]  # torch has no types here
    """Torch's own index_add keeps the rows, to know their shape in backward."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, tokens: Tensor, count: int) -> Tensor:  # noqa: ANN401
        ctx.save_for_backward(tokens)
        return rows.new_zeros(count, rows.shape[1]).index_add_(0, tokens, rows)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401
        return grad.index_select(0, ctx.saved_tensors[0]), None, None
