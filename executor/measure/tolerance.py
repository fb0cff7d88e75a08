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
(`executor.measure.roundings`): two computations in fp32 are each that far from the exact gradient,
and twice that far from each other. The drawn errors are the same on every processor.

A ReLU or a pool of maxima chooses by values that are rounded: one choice of millions that falls the
other way changes a gradient by more than all other roundings together, and errors that are drawn
make more of them do so than real ones, which are smaller (ResNet-18 of 64 x 64: up to 0.16 of a
gradient, instead of 9e-6 where none does). So errors are drawn `FINE` times as large first, where
hardly any choice changes, and what they do is scaled up. Only a plan outside that is held against
errors of full size; where these explain as much as a lost term would change, the judgement says
that it decides nothing.

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
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from executor.measure.gradients import Gradients, max_relative_error, reference
from executor.measure.roundings import Roundings
from executor.measure.steps import known
from executor.model.first_values import Values
from executor.model.stage import has_experts
from executor.parallel.precision import compute_dtype
from parsim.model.reader import Description
from parsim.plan import Plan

EXACT = 1e-6
"""Bound in fp32, whose roundings are 6e-8: sums in another order, nothing else."""

ROUNDINGS = 2.0
"""Times the rounding error of one process."""

DRAWS = 4
"""Drawn errors of which the largest counts."""

FINE = 2.0**-14
"""Size of the first drawn errors in fp32: far above those of fp64, in which they are drawn."""

TELLING = 0.1
"""A lost or doubled term changes a gradient by tens of percent: what may be this far off for its
roundings alone is not verified."""

_FIRST_DRAW = 7_919
"""The seed of the first draw; a model's own seed would draw the numbers of its weights again."""

CHOICES = 1.0
"""Bound in 16 bit where other experts may be chosen: as much as the largest gradient."""

LOSS_IN_16_BIT = 2.0**-8
"""Bound on the loss where logits have 8 bits (bf16; fp16 has 11, its sums are no better): one
rounding of all of them in the same direction."""


Alone = Callable[..., tuple[float, Gradients]]
"""Loss and gradients of one process, in a `precision` of its own where one is given."""


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

    @property
    def decides(self) -> bool:
        """Whether a plan that trains wrongly would be outside the bound."""
        return self.bound < TELLING

    def to_json(self) -> dict[str, Any]:
        """All of it as plain data; null for what is infinite or undefined."""
        numbers = {
            name: known(value) if isinstance(value, float) else value
            for name, value in asdict(self).items()
        }
        return {**numbers, "within": self.within, "decides": self.decides}


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
    rounded, device = plan.precision != "fp32", batch[0].device
    if rounded:
        bound = _bound_rounded(alone, device, exact, plan.precision, worst.error)
    else:
        bound = _bound_in_fp32(alone, device, worst.error)
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


def _bound_rounded(
    alone: Alone, device: torch.device, exact: Gradients, precision: str, error: float
) -> float:
    """What gradients of a 16-bit precision may be off by; drawn roundings only if `error` is more.

    `exact` are the gradients in fp32, without dropout.
    """
    one_process = alone(precision=precision)[1]
    bound = max(EXACT, ROUNDINGS * max_relative_error(one_process, exact).error)
    stored = compute_dtype(precision)
    if error > bound and stored != torch.float32:
        bound = max(bound, ROUNDINGS * _rounding(alone, device, exact, precision, stored))
    return bound


def _bound_in_fp32(alone: Alone, device: torch.device, error: float) -> float:
    """What gradients in fp32 may be off by; drawn roundings, and coarser ones, only if need be."""
    if error <= EXACT:
        return EXACT
    wide = alone(precision="fp64")[1]
    bound = max(EXACT, ROUNDINGS * _rounding(alone, device, wide, "fp64", scale=FINE))
    if error > bound:
        bound = max(bound, ROUNDINGS * _rounding(alone, device, wide, "fp64"))
    return bound


def _rounding(
    alone: Alone,
    device: torch.device,
    exact: Gradients,
    precision: str,
    stored: torch.dtype | None = None,
    scale: float = 1.0,
) -> float:
    """How far roundings may take a gradient from the exact one, in whatever order its sums are.

    `precision` is what one process computes in while each operation errs, see `Roundings`. What
    errors of another `scale` do is taken for as much less or more.
    """
    errors = []
    for draw in range(DRAWS):
        with Roundings(_FIRST_DRAW + draw, device, stored, scale):
            drawn = alone(precision=precision)[1]
        errors.append(max_relative_error(drawn, exact).error)
    return max(errors) / scale


def relative_error(values: Tensor, expected: Tensor) -> float:
    """The largest difference from what is expected, over the largest expected value.

    Where all that is expected is 0 it is 0 for equal values, and else huge.
    """
    return float((values - expected).abs().max()) / max(float(expected.abs().max()), 1e-30)
