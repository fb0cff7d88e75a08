"""Passes through a layer: sums of the kernels and exposed collectives of its operators.

All fields are columns of shape (B,), one entry per plan.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from parsim.arrays import Array, Columns, Flags, ratio
from parsim.cost.layer.operator_parts import (
    Exchange,
    Kernels,
    PassPart,
    launches_of,
    seconds_of,
)
from parsim.plan import PlanTable, Recompute


@dataclass(slots=True, kw_only=True)
class Pass(Columns):
    """Device seconds without collectives, exposed collectives, host launches.

    `exposed` are seconds of tensor-parallel collectives that nothing hides.
    """

    kernels: Array
    exposed: Array
    launches: Array

    @classmethod
    def zero(cls, rows: int) -> Pass:
        """A pass that costs nothing."""
        return cls(kernels=np.zeros(rows), exposed=np.zeros(rows), launches=np.zeros(rows))

    def plus(self, other: Pass, times: float = 1.0) -> Pass:
        """This pass followed by another, repeated."""
        return Pass(
            kernels=self.kernels + other.kernels * times,
            exposed=self.exposed + other.exposed * times,
            launches=self.launches + other.launches * times,
        )

    def less(self, other: Pass) -> Pass:
        """What is left of this pass without another that is a part of it; nothing below zero."""
        left = np.maximum(self.seconds - other.seconds, 0.0)
        exposed = np.minimum(self.exposed, left)
        launches = np.maximum(self.launches - other.launches, 0.0)
        return Pass(kernels=left - exposed, exposed=exposed, launches=launches)

    @property
    def seconds(self) -> Array:
        """Kernels and exposed collectives together."""
        return self.kernels + self.exposed

    @property
    def exposed_share(self) -> Array:
        """Share of the seconds that is exposed collectives, from 0 to 1."""
        return np.asarray(np.clip(ratio(self.exposed, self.seconds), 0.0, 1.0))

    def scaled(self, factor: Array | float) -> Pass:
        """This pass with all its seconds multiplied; launches stay."""
        return Pass(
            kernels=self.kernels * factor, exposed=self.exposed * factor, launches=self.launches
        )

    def waiting(self, seconds: Array) -> Pass:
        """A pass of the same length, of which so much, at most all, is exposed collectives."""
        exposed = np.minimum(seconds, self.seconds)
        return Pass(kernels=self.seconds - exposed, exposed=exposed, launches=self.launches)

    def where(self, mask: Flags) -> Pass:
        """This pass where the mask holds, else nothing."""
        return Pass(
            kernels=np.where(mask, self.kernels, 0.0),
            exposed=np.where(mask, self.exposed, 0.0),
            launches=np.where(mask, self.launches, 0.0),
        )

    def add(self, kernels: Array | float, launches: Array | float) -> None:
        """Append kernels to the pass."""
        self.kernels = self.kernels + kernels
        self.launches = self.launches + launches

    def expose(self, seconds: Array) -> None:
        """Append a collective that nothing hides; the host launches it like a kernel."""
        self.exposed = self.exposed + seconds
        self.launches = self.launches + (seconds > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCost(Columns):
    """Forward and backward of one layer and one micro-batch.

    `core` is the forward of its attention core alone, `products` that of its matrix products,
    `crowded` those products beside a collective (`cost/layer/interference.py`), `weights` that part
    of backward that nothing behind the layer waits for, `routed` what
    shows of moving tokens to experts and back, `modules` the forward of the parts that the plan
    computes again by name.
    """

    forward: Pass
    backward: Pass
    core: Pass
    products: Pass
    crowded: Pass
    weights: Pass
    routed: Pass
    modules: Pass

    @classmethod
    def zero(cls, rows: int) -> LayerCost:
        """A layer without operators yet."""
        return cls(**{part.name: Pass.zero(rows) for part in fields(cls)})

    def add(self, part: Kernels | Exchange) -> None:
        """Append an operator's kernels of one direction, or one of its collectives."""
        if isinstance(part, Exchange):
            self._expose(part)
            return
        seconds, launches = seconds_of(part), launches_of(part)
        if part[0].part is PassPart.BACKWARD:
            self.backward.add(seconds, launches)
            for kernel in part:
                if kernel.weights:
                    self.weights.add(kernel.total, kernel.launches)
            return
        self.forward.add(seconds, launches)
        if part[0].part is PassPart.CORE:
            self.core.add(seconds, launches)
        for kernel in part:
            if kernel.crowded is not None:
                self.products.add(kernel.total, kernel.launches)
                self.crowded.add(kernel.crowded, kernel.launches)

    def _expose(self, exchange: Exchange) -> None:
        forward = exchange.part is not PassPart.BACKWARD
        (self.forward if forward else self.backward).expose(exchange.exposed)
        if exchange.part is PassPart.CORE:
            self.core.expose(exchange.exposed)
        if exchange.routed:
            self.routed.expose(exchange.exposed)

    def shown(self, hidden: float, taken: float) -> Array:
        """Share of moving tokens to experts and back that shows where the stack hides some, (B,).

        One micro-batch's exchanges run beside the compute of another's forward and backward, C
        seconds, of whose multiprocessors they take a share. Of T seconds of exchanges `hidden` T
        then cost the larger of `taken` hidden T and hidden T - C.

        Source: DualPipe (arXiv:2412.19437, section 3.2.1); Megatron-Core's
        `overlap_moe_expert_parallel_comm`.
        Leaves out: that the first forwards and last backwards of a pipeline have no partner.
        """
        moved = 2.0 * self.routed.exposed
        beside = self.forward.kernels + self.backward.kernels
        costs = np.maximum(hidden * taken * moved, hidden * moved - beside)
        return 1.0 - hidden + ratio(costs, moved)

    def showing(self, share: Array | float) -> LayerCost:
        """The layer with so much of the exchanges of tokens with experts, the same both ways."""
        gone = self.routed.exposed * (1.0 - share)
        return replace(
            self,
            forward=replace(self.forward, exposed=self.forward.exposed - gone),
            backward=replace(self.backward, exposed=self.backward.exposed - gone),
            routed=replace(self.routed, exposed=self.routed.exposed - gone),
        )

    def plus(self, other: LayerCost) -> LayerCost:
        """This layer followed by another one."""
        names = [field.name for field in fields(self)]
        return LayerCost(**{name: getattr(self, name).plus(getattr(other, name)) for name in names})

    def scaled(self, forward: Array, backward: Array) -> LayerCost:
        """A layer whose seconds are multiplied, those of either direction by a factor."""
        ahead = {
            part.name: getattr(self, part.name).scaled(forward)
            for part in fields(self)
            if part.name not in ("backward", "weights")
        }
        behind, weights = self.backward.scaled(backward), self.weights.scaled(backward)
        return LayerCost(**ahead, backward=behind, weights=weights)

    def recomputed(self, table: PlanTable, half_products: bool) -> Pass:
        """What backward runs again under each plan's recomputation policy.

        Selective repeats the attention core (Korthikanti et al. 2022), or, with `half_products`,
        everything but the attention and every second product (operator-level checkpointing), and
        the parts that the plan names.
        """
        full = self.forward.where(table.recompute == Recompute.FULL)
        chosen = self.core
        if half_products:
            chosen = self.forward.plus(self.core, -1.0).plus(self.products, -0.5)
        again = full.plus(chosen.where(table.recompute == Recompute.SELECTIVE))
        return again.plus(self.modules.where(table.recompute != Recompute.FULL))
