"""What an operator consists of: kernels, in groups, and collectives.

Whoever prices a layer adds up each group and then the groups (`cost/layer/passes.py`); whoever asks
for single kernels (what a calibration should measure) takes them apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import reduce
from operator import add

from parsim.arrays import Array, Num
from parsim.cost.job import Job
from parsim.cost.kernel.kernels import memory_time


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


def moved_kernel(
    job: Job,
    part: PassPart,
    kind: str,
    moved: Array,
    kernels: float,
    launches: float | None = None,
) -> Kernel:
    """Memory-bound kernels that move so many bytes together; the host may launch others too."""
    return Kernel(
        kind=kind,
        part=part,
        shape=(moved,),
        seconds=memory_time(job.device, moved, kernels, kind),
        launches=kernels if launches is None else launches,
    )
