"""Tensor-parallel collectives at the borders of split matrices.

A column-split matrix needs nothing forward and an all-reduce of its input gradient backward, a
row-split one the other way round. Sequence parallelism replaces each all-reduce by a
reduce-scatter and adds an all-gather in the other direction.

Source: Shoeybi et al. 2019 (arXiv:1909.08053); Korthikanti et al. 2022 (arXiv:2205.05198), fig. 5.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parsim.cost.collectives import Groups, Kind, collective_time, groups
from parsim.cost.crowding import crowded_device
from parsim.cost.job import Job
from parsim.cost.streams import pipelined
from parsim.model.operators import Linear, Split
from parsim.plan import PlanTable
from parsim.plan.record import Quantization

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Border:
    """Seconds of the collectives (B,) before (`entering`) and after (`leaving`) a matrix."""

    entering_forward: Array
    entering_backward: Array
    leaving_forward: Array
    leaving_backward: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Borders:
    """The tensor-parallel groups of a table of plans."""

    job: Job
    table: PlanTable
    tokens: Array
    where: Groups

    @classmethod
    def of(cls, job: Job, table: PlanTable, tokens: Array) -> Borders:
        """Place the groups; `tokens` (B,) of a micro-batch pass a border."""
        where = groups(job.system, size=table.tp, stride=table.stride("tp"), world=table.world_size)
        return cls(job=job, table=table, tokens=tokens, where=where)

    def around(self, op: Linear, how: Quantization | None = None) -> Border:
        """Collectives around one matrix."""
        zero = np.zeros(len(self.table))
        reduce, spread = zero, zero
        if op.split is Split.COLUMN:
            reduce, spread = self.exchange(op.inputs, how)
            return Border(
                entering_forward=spread,
                entering_backward=reduce,
                leaving_forward=zero,
                leaving_backward=zero,
            )
        if op.split is Split.ROW:
            reduce, spread = self.exchange(op.outputs, how)
        return Border(
            entering_forward=zero,
            entering_backward=zero,
            leaving_forward=reduce,
            leaving_backward=spread,
        )

    def exchange(self, width: int, how: Quantization | None = None) -> tuple[Array, Array]:
        """(reducing, spreading) collective of `tokens` rows of a width, seconds.

        What a quantised product needs is gathered as it enters it, sums are carried in 16 bit.
        """
        size = self.tokens * width * self.table.precision.activation
        sequence = self.table.sequence_parallel
        whole, scatter = self.time("all_reduce", size), self.time("reduce_scatter", size)
        spread = size if how is None else self.tokens * width * how.operand
        gather = self.time("all_gather", spread)
        return np.where(sequence, scatter, whole), np.where(sequence, gather, 0.0)

    def time(self, kind: Kind, size: Array) -> Array:
        """Seconds of one collective."""
        return collective_time(self.job.system, kind, size, self.where)

    def beside(self, collective: Array, kernel: Array) -> Array:
        """What shows of a collective that runs beside a backward GEMM.

        The stack's share of the shorter of the two hides, less what the kernel loses to the
        collective's multiprocessors.
        """
        hidden = self.job.software.tp_overlap_backward * self.kept * np.minimum(collective, kernel)
        return np.asarray(collective - hidden)

    def chunked(self, collective: Array, kernel: Array, chunk: Array) -> Array:
        """What shows of a collective that runs in tp chunks beside the chunks of its GEMM, (B,).

        The product of m rows becomes tp products of m / tp rows (`chunk` seconds each), and each
        chunk's share of the collective runs beside the next one's product, which keeps the
        multiprocessors that the collective leaves: a pipeline of tp pieces, less the `kernel`
        seconds of the product in one. At most the collective itself, because a stack switches off
        what does not pay; and all of it without sequence parallelism, which chunks need.

        Source: user buffers of Transformer Engine (ring exchange and pipelined reduce-scatter).
        Leaves out: copy engines, which take no multiprocessors; the first chunk of a gather, which
        is there already; bulk overlap of fewer, larger pieces.
        """
        tp = self.table.tp.astype(np.float64)
        shown = pipelined(tp * chunk, collective, tp, self.kept) - kernel
        on = self.table.sequence_parallel & (self.table.tp > 1)
        return np.where(on, np.clip(shown, 0.0, collective), collective)

    @property
    def kept(self) -> float:
        """Share of the multiprocessors that a collective leaves to a product."""
        return crowded_device(self.job.system).sm_count / self.job.device.sm_count
