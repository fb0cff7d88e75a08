"""One direction of a layer as seconds and launches, and a layer's passes together.

All fields are columns of shape (B,), one entry per plan.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parsim.plan import PlanTable, Recompute

Array = NDArray[np.float64]


@dataclass(slots=True, kw_only=True)
class Pass:
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

    @property
    def seconds(self) -> Array:
        """Kernels and exposed collectives together."""
        return self.kernels + self.exposed

    def scaled(self, factor: Array | float) -> Pass:
        """This pass with all its seconds multiplied; launches stay."""
        return Pass(
            kernels=self.kernels * factor, exposed=self.exposed * factor, launches=self.launches
        )

    def waiting(self, seconds: Array) -> Pass:
        """A pass of the same length, of which so much, at most all, is exposed collectives."""
        exposed = np.minimum(seconds, self.seconds)
        return Pass(kernels=self.seconds - exposed, exposed=exposed, launches=self.launches)

    def where(self, mask: NDArray[np.bool_]) -> Pass:
        """This pass where the mask holds, else nothing."""
        return Pass(
            kernels=np.where(mask, self.kernels, 0.0),
            exposed=np.where(mask, self.exposed, 0.0),
            launches=np.where(mask, self.launches, 0.0),
        )

    def take(self, rows: NDArray[np.int64]) -> Pass:
        """The same for some of the plans."""
        return Pass(
            kernels=self.kernels[rows], exposed=self.exposed[rows], launches=self.launches[rows]
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
class LayerCost:
    """Forward and backward of one layer and one micro-batch.

    `core` is the forward of its attention core alone, `products` that of its matrix products,
    `crowded` those products beside a collective (`cost/crowding.py`), `routed` what shows of moving
    tokens to experts and back, `modules` the forward of the parts that the plan computes again by
    name.
    """

    forward: Pass
    backward: Pass
    core: Pass
    products: Pass
    crowded: Pass
    routed: Pass
    modules: Pass

    @classmethod
    def zero(cls, rows: int) -> LayerCost:
        """A layer without operators yet."""
        return cls(
            forward=Pass.zero(rows),
            backward=Pass.zero(rows),
            core=Pass.zero(rows),
            products=Pass.zero(rows),
            crowded=Pass.zero(rows),
            routed=Pass.zero(rows),
            modules=Pass.zero(rows),
        )

    def take(self, rows: NDArray[np.int64]) -> LayerCost:
        """The same for some of the plans."""
        return LayerCost(
            forward=self.forward.take(rows),
            backward=self.backward.take(rows),
            core=self.core.take(rows),
            products=self.products.take(rows),
            crowded=self.crowded.take(rows),
            routed=self.routed.take(rows),
            modules=self.modules.take(rows),
        )

    def scaled(self, forward: Array, backward: Array) -> LayerCost:
        """The same with all seconds of either direction multiplied."""
        return LayerCost(
            forward=self.forward.scaled(forward),
            backward=self.backward.scaled(backward),
            core=self.core.scaled(forward),
            products=self.products.scaled(forward),
            crowded=self.crowded.scaled(forward),
            routed=self.routed.scaled(forward),
            modules=self.modules.scaled(forward),
        )

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
