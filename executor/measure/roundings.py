"""Arithmetic in which every operation errs as fp32, or 16 bit, may, on any processor.

A sum of n terms in fp32 has an error of at most (n - 1) u sum|x|, u = 2^-24, whatever the order in
which it is taken (Higham, Accuracy and Stability of Numerical Algorithms, 4.2), and of about
sqrt(n) u sum|x| where the errors of the additions are independent (Higham and Mary 2019,
SIAM J. Sci. Comput. 41-5). Which error it has hangs on the order, and so on the processor's vectors
and on how a model is cut over ranks. Here, as in Monte Carlo arithmetic (Parker 1997, UCLA
CSD-970002), each error is drawn:

    a sum      of terms x (1 + sqrt(n) u r), r uniform between -1 and 1 and drawn for each term: the
               error has the deviation sqrt(n sum x^2 / 3) u, at least u sum|x| / sqrt(3) by Cauchy
    a result   y (1 + u r): one rounding

n is the longest extent of what the operation reads, which no sum in it exceeds. Errors are passed
on by the model itself, so a small sum of large terms has the large error that it should have.

Measured on seven tiny models of 5 layers, three batches each, with torch's plain, AVX2 and AVX-512
loops: the largest real error of a model's gradients is 0.1 to 0.6 times the largest of four drawn
ones, which are the same with all loops.

In 16 bit, sums are fp32's and what is stored is rounded: a model that runs in 16 bit has each such
result off by one rounding more, as a sum over ranks has. Errors are drawn, for a processor's own
are the same at each run: one process in bf16 was 0.9 % from fp32 with AVX2 loops and 1.2 % with
plain ones, a plan of four ranks 1.9 % with either.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

UNIT = 2.0**-24
"""Largest relative error of one rounding to fp32; to 16 bit it is that of the type."""

_SUMS = ("mm", "sum", "mean", "softmax", "norm", "attention", "index_add", "dense_backward")
"""Parts of the names of torch's operations that add up many terms."""


class Roundings(TorchDispatchMode):  # type: ignore[misc]  # torch has no types here
    """While entered, every operation on floating-point tensors of a device errs, as a seed says.

    With a 16-bit type `stored`, results of that type err by one rounding of it, and others do not.
    Errors are `scale` times as large as those of the type.
    """

    def __init__(
        self,
        seed: int,
        device: torch.device,
        stored: torch.dtype | None = None,
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        self._device, self._stored = device, stored
        self._unit = scale * (torch.finfo(stored).eps / 2.0 if stored else UNIT)
        self._draws = torch.Generator(device).manual_seed(seed)

    def __torch_dispatch__(
        self,
        operation: Any,  # noqa: ANN401 - torch has no type for it
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the operation gives
        """Run one operation with errors in what it reads, if it adds up, and in what it writes."""
        schema = operation._schema
        if self._stored is None and any(part in schema.name for part in _SUMS):
            written = [argument.alias_info is not None for argument in schema.arguments]
            args = self._terms(args, written[: len(args)])
        result = operation(*args, **(kwargs or {}))
        results = result if isinstance(result, tuple) else (result,)
        for value, returned in zip(results, schema.returns, strict=False):
            view = returned.alias_info is not None and not returned.alias_info.is_write
            if self._errs(value) and not view:
                value.mul_(self._errors(value, self._unit))
        return result

    def _terms(self, args: Sequence[Any], written: Sequence[bool]) -> list[Any]:
        """What a sum reads, each term off by sqrt(n) roundings; what it writes stays."""
        extents = [max(value.shape, default=1) for value in args if self._errs(value)]
        size = self._unit * math.sqrt(max(extents, default=1))
        return [
            value * self._errors(value, size) if self._errs(value) and not kept else value
            for value, kept in zip(args, written, strict=True)
        ]

    def _errors(self, like: Tensor, size: float) -> Tensor:
        wide = torch.float32 if self._stored else like.dtype  # 1 + u r has no place in 16 bit
        draws = torch.rand(like.shape, dtype=wide, device=like.device, generator=self._draws)
        return draws.mul_(2.0 * size).add_(1.0 - size)

    def _errs(self, value: object) -> bool:
        return (
            isinstance(value, Tensor)
            and value.is_floating_point()
            and value.device == self._device
            and self._stored in (None, value.dtype)
        )
