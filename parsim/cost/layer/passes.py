"""What an operator runs, kernel by kernel, and passes through a layer: the sums of its kernels.

An operator yields its kernels in groups. Whoever prices a layer adds up each group and then the
groups; whoever asks for single kernels (what a calibration should measure) takes them apart.
All fields of passes are columns of shape (B,), one entry per plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from enum import Enum
from functools import reduce
from operator import add

import numpy as np

from parsim.arrays import Array, Columns, Flags, Num, ratio
from parsim.plan import PlanTable, Recompute


class PassPart(Enum):
    """The part of a layer that a kernel belongs to: policies of recomputation repeat some."""

    PRODUCT = "matrix products of forward"
    CORE = "attention core of forward"
    FORWARD = "the rest of forward"
    BACKWARD = "backward"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One kernel of an operator for one micro-batch of B plans.

    `shape` are the coordinates of the kind's measured points: m, n, k; executed FLOPs and sequence
    length; bytes. `seconds` (B,) is one run, `runs` how many a pass has, `launches` what the host
    launches for all of them. Products have `crowded` seconds too, those beside a collective.
    `weights` marks what computes weight gradients, or adds them to those of earlier micro-batches.
    """

    kind: str
    part: PassPart
    shape: tuple[Num, ...]
    seconds: Array
    launches: Num
    runs: Num | None = None
    crowded: Array | None = None
    weights: bool = False

    @property
    def total(self) -> Array:
        """Seconds of all runs of a pass."""
        return self.seconds if self.runs is None else self.runs * self.seconds


Kernels = Sequence[Kernel]
"""Kernels of one direction, in the order in which their seconds are added up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """What shows of one collective of an operator, seconds (B,).

    `routed` tells tokens on their way to experts and back from tensors at a matrix's borders.
    """

    part: PassPart
    exposed: Array
    routed: bool = False


def seconds_of(kernels: Kernels) -> Array:
    """Seconds of a pass through all of them, (B,)."""
    return reduce(add, (kernel.total for kernel in kernels))


def launches_of(kernels: Kernels) -> Num:
    """What the host launches for all of them."""
    return reduce(add, (kernel.launches for kernel in kernels))


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
