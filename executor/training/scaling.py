"""Loss scaling for fp16, whose numbers end at 65,504 and below 6e-8: torch's own, over all ranks.

    loss x scale -> backward -> reduce -> gradients / scale -> norm, clip -> update, or none of it

An infinite or undefined gradient on any rank of the plan lets all of them skip the update and
halves the scale; after 2,000 updates in a row it is doubled. The rule, the state and the agreement
are those of torch's `ShardedGradScaler` with the group of all ranks (Micikevicius et al. 2018,
arXiv:1710.03740, section 3.2). It is given the gradients as this rank holds them: buckets, shares
of ZeRO, local parts of split parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

from executor.model.loss import LossFn
from executor.model.module import TransformerStage
from executor.model.stage import Stage
from executor.parallel.precision import compute_dtype
from parsim.plan import Plan

FIRST_SCALE = 2.0**16
"""Where the scale begins; torch's default."""

SMALLEST_SCALE = 2.0**-10
"""Where looking for a scale ends: what is still infinite is so whatever the scale."""

STATES = ("scale", "_growth_tracker")
"""What changes of the state that torch's scaler gives: the scale, updates since it did."""


class LossScaling:
    """The scale of a rank's loss, which is that of all ranks; every rank must call all of it."""

    def __init__(self, device: torch.device, first: float = FIRST_SCALE) -> None:
        self._scaler: Any = ShardedGradScaler(
            device=device.type, init_scale=first, process_group=dist.group.WORLD
        )
        # torch makes it with the first loss, which only ranks with a last stage see
        self._scaler.scale(torch.zeros((), device=device))
        self._gradients = _Gradients([])

    @property
    def scale(self) -> float:
        """What the loss is multiplied by; the host waits for it."""
        return float(self._scaler.get_scale())

    def scaled(self, loss_fn: LossFn) -> LossFn:
        """A loss of the same value whose backward starts from the scale."""

        def loss(outputs: Tensor, targets: Tensor) -> Tensor:
            value = loss_fn(outputs, targets)
            if value.requires_grad:
                value.register_hook(self._scaler.scale)
            return value

        return loss

    def apply(self, stages: Iterable[Stage]) -> None:
        """Scale what enters backward beside the loss too: the balance of experts."""
        for stage in stages:
            if isinstance(stage, TransformerStage):
                for mixture in stage.mixtures().values():
                    mixture.balance.scaled = self._scaler.scale

    def unscale(self, gradients: Iterable[Tensor]) -> None:
        """Divide this rank's gradients by the scale, in place; all ranks learn of an overflow."""
        self._gradients = _Gradients(gradients)
        self._scaler.unscale_(self._gradients)

    def step(self, update: Callable[[], None] = lambda: None) -> bool:
        """Update, unless a gradient overflowed, and move the scale; whether it was done."""
        self._gradients.update = update
        self._scaler.step(self._gradients)
        self._scaler.update()
        return self._gradients.updated

    @property
    def state(self) -> dict[str, float]:
        """What a checkpoint keeps."""
        state = self._scaler.state_dict()
        return {name: float(state[name]) for name in STATES}

    @state.setter
    def state(self, stored: Mapping[str, float]) -> None:
        given = {"scale": stored["scale"], "_growth_tracker": int(stored["_growth_tracker"])}
        self._scaler.load_state_dict({**self._scaler.state_dict(), **given})


class _Gradients:
    """Gradients in the form of an optimizer, as torch's scaler takes them."""

    def __init__(self, gradients: Iterable[Tensor]) -> None:
        self.param_groups = [{"params": [SimpleNamespace(grad=values) for values in gradients]}]
        self.update: Callable[[], None] = lambda: None
        self.updated = False

    def step(self) -> None:
        """Called where nothing overflowed."""
        self.update()
        self.updated = True


def loss_scaling(plan: Plan, device: torch.device, first: float) -> LossScaling | None:
    """The scaling that a plan's precision needs: fp16's; None for others."""
    return LossScaling(device, first) if compute_dtype(plan.precision) == torch.float16 else None


def until_finite(
    compute: Callable[[float], tuple[float, dict[str, Tensor]]],
) -> tuple[float, dict[str, Tensor]]:
    """A loss and gradients computed at the largest scale at which no gradient overflows."""
    scale = FIRST_SCALE
    while True:
        loss, gradients = compute(scale)
        finite = all(bool(values.isfinite().all()) for values in gradients.values())
        if finite or not math.isfinite(loss) or scale <= SMALLEST_SCALE:
            return loss, {name: values / scale for name, values in gradients.items()}
        scale /= 2.0
