"""How far a plan's loss and gradients may be from those of one process.

    precision        compared with one process in    largest relative error of a gradient
    fp32             fp32                            1e-6, or what rounding explains
    tf32 bf16 fp16   fp32                            what rounding explains
    their _amp       fp32                            what rounding explains
    mixture, 16 bit  fp32                            1: another choice of experts

What rounding explains is found for the model and batch at hand, since it hangs on how the model's
layers pass errors on. In fp32 the order of every sum is free: it differs between processors, and
between a plan and one process. So the error is not that of one order, which may be small by luck,
but the largest of `DRAWS` drawn in fp64 from the number of terms, their size and the unit roundoff
(`Roundings`): two computations in fp32 are each that far from the exact gradient,
and twice that far from each other. The drawn errors are the same on every processor.

In 16 bit it is the error that one process has in the plan's own precision, times `ROUNDINGS`; it
lies between 0.6 and 4 % for small models. Where that is not enough it is the largest of `DRAWS`
runs of one process in which each 16-bit result is off by a drawn rounding more, for the one error
of one processor's loops may be small by luck too. Cutting a model over ranks adds roundings of the
same size and in the same places, where partial sums of tensor ranks are rounded before they are
added: measured over GPT-2, Llama and BERT of 4 layers on 2 and 4 ranks, plans are 0.4 to 2.1 times
as far from fp32 as one process is. A lost or doubled term, a wrong average or a missing exchange
changes a gradient by tens of percent.

A router chooses in fp32, but of states that are rounded: where two experts are as good as equal
for a token, a plan in bf16 may choose the other one. With 8 to 60 tokens an expert one such token
changed a gradient by 20 to 50 % (5 layers, 4 ranks; also in one process). So bf16 shows no more of
a mixture than that it trains: verify it in fp32, where choices are the same but for ties of 1e-7.

Arithmetic in which every operation errs as fp32, or 16 bit, may, on any processor.

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from executor.measure.gradients import Gradients, max_relative_error, reference
from executor.model.module import Values
from executor.model.stage import has_experts
from executor.parallel.precision import compute_dtype
from parsim.model.reader import Description
from parsim.plan import Plan

UNIT = 2.0**-24
"""Largest relative error of one rounding to fp32; to 16 bit it is that of the type."""

_SUMS = ("mm", "sum", "mean", "softmax", "norm", "attention", "index_add", "dense_backward")
"""Parts of the names of torch's operations that add up many terms."""


class Roundings(TorchDispatchMode):  # type: ignore[misc]  # torch has no types here
    """While entered, every operation on floating-point tensors of a device errs, as a seed says.

    With a 16-bit type `stored`, results of that type err by one rounding of it, and others do not.
    """

    def __init__(self, seed: int, device: torch.device, stored: torch.dtype | None = None) -> None:
        super().__init__()
        self._device, self._stored = device, stored
        self._unit = torch.finfo(stored).eps / 2.0 if stored else UNIT
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
        size = UNIT * math.sqrt(max(extents, default=1))
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


EXACT = 1e-6
"""Bound in fp32, whose roundings are 6e-8: sums in another order, nothing else."""

ROUNDINGS = 2.0
"""Times the rounding error of one process."""

DRAWS = 4
"""Drawn errors of which the largest counts."""

_FIRST_DRAW = 7_919
"""The seed of the first draw; a model's own seed would draw the numbers of its weights again."""

CHOICES = 1.0
"""Bound in 16 bit where other experts may be chosen: as much as the largest gradient."""

LOSS_IN_16_BIT = 2.0**-8
"""Bound on the loss where logits have 8 bits (bf16; fp16 has 11, its sums are no better): one
rounding of all of them in the same direction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Errors of a plan, what they may be, and what they were measured against.

    Errors are relative; of gradients the largest over parameters, and the `parameter` that has it.
    """

    max_gradient_error: float
    parameter: str
    max_loss_error: float
    bound: float
    loss_bound: float
    reference: str

    @property
    def within(self) -> bool:
        """Whether the plan trains as one process does."""
        small = self.max_gradient_error <= self.bound
        return small and self.max_loss_error <= self.loss_bound


def judge(
    spec: Description,
    plan: Plan,
    batch: tuple[Tensor, Tensor],
    seed: int,
    loss: float,
    gradients: Gradients,
    values: Values | None = None,
) -> Judgement:
    """Hold the loss and gradients of a global batch against one process's, computed here.

    `values` gives the weights, see `build_stage`.
    """
    alone = partial(reference, spec, plan, batch, seed, values=values)
    exact_loss, exact = alone()
    worst = max_relative_error(gradients, exact)
    rounded = plan.precision != "fp32"
    bound, device = EXACT, batch[0].device
    if rounded:
        one_process = alone(precision=plan.precision)[1]
        bound = max(EXACT, ROUNDINGS * max_relative_error(one_process, exact).error)
        stored = compute_dtype(plan.precision)
        if worst.error > bound and stored != torch.float32:
            bound = max(bound, ROUNDINGS * _rounding(alone, device, exact, plan.precision, stored))
    elif worst.error > EXACT:
        wide = alone(precision="fp64")[1]
        bound = max(EXACT, ROUNDINGS * _rounding(alone, device, wide, "fp64"))
    if rounded and has_experts(spec):
        bound = max(bound, CHOICES)
    return Judgement(
        max_gradient_error=worst.error,
        parameter=worst.parameter,
        max_loss_error=abs(loss / exact_loss - 1.0),
        bound=bound,
        loss_bound=LOSS_IN_16_BIT if rounded else EXACT,
        reference="one process, same seed and batch, fp32, without dropout",
    )


def _rounding(
    alone: Callable[..., tuple[float, Gradients]],
    device: torch.device,
    exact: Gradients,
    precision: str,
    stored: torch.dtype | None = None,
) -> float:
    """How far roundings may take a gradient from the exact one, in whatever order its sums are.

    `precision` is what one process computes in while each operation errs, see `Roundings`.
    """
    errors = []
    for draw in range(DRAWS):
        with Roundings(_FIRST_DRAW + draw, device, stored):
            drawn = alone(precision=precision)[1]
        errors.append(max_relative_error(drawn, exact).error)
    return max(errors)
