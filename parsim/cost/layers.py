"""Seconds of one layer's forward, backward and recomputation for one micro-batch, per plan.

A layer is the sum of its kernels plus the tensor-parallel collectives at the borders of its split
matrices. Host launches are counted apart: where the host cannot launch kernels as fast as the
device runs them, the chunk takes the host's time (cost/stages.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parsim.cost.collectives import Groups, Kind, collective_time, groups
from parsim.cost.job import Job
from parsim.cost.kernels import flash_attention_time, gemm_time, memory_time
from parsim.model.operators import (
    Attention,
    Elementwise,
    Layer,
    Linear,
    Lookup,
    Loss,
    Operator,
    Region,
    Split,
)
from parsim.plan import PlanTable, Recompute

Array = NDArray[np.float64]

FLASH_BACKWARD = 2.5
"""Backward FLOPs of flash attention over forward: 5 products instead of 2 (Dao et al. 2022)."""
FORWARD_SHARE = 0.4
"""Share of the loss's traffic that forward moves (the rest is backward)."""


@dataclass(slots=True, kw_only=True)
class Pass:
    """One direction of a layer: device seconds without collectives, collectives, host launches.

    `exposed` are seconds of tensor-parallel collectives that nothing hides, (B,).
    """

    kernels: Array
    exposed: Array
    launches: Array

    @classmethod
    def zero(cls, rows: int) -> Pass:
        """A pass that costs nothing."""
        return cls(kernels=np.zeros(rows), exposed=np.zeros(rows), launches=np.zeros(rows))

    def plus(self, other: Pass, times: Array | float = 1.0) -> Pass:
        """This pass followed by another, repeated."""
        return Pass(
            kernels=self.kernels + other.kernels * times,
            exposed=self.exposed + other.exposed * times,
            launches=self.launches + other.launches * times,
        )

    def where(self, mask: NDArray[np.bool_]) -> Pass:
        """This pass where the mask holds, else nothing."""
        return Pass(
            kernels=np.where(mask, self.kernels, 0.0),
            exposed=np.where(mask, self.exposed, 0.0),
            launches=np.where(mask, self.launches, 0.0),
        )

    def add(self, kernels: Array, launches: Array | float, exposed: Array | float = 0.0) -> None:
        """Append kernels to the pass."""
        self.kernels = self.kernels + kernels
        self.launches = self.launches + launches
        self.exposed = self.exposed + exposed


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCost:
    """Forward and backward of one layer and one micro-batch.

    `core` is the forward of its attention core alone, `products` that of its matrix products.
    """

    forward: Pass
    backward: Pass
    core: Pass
    products: Pass

    def recomputed(self, table: PlanTable, half_products: bool) -> Pass:
        """What backward runs again under each plan's recomputation policy.

        Selective repeats the attention core (Korthikanti et al. 2022), or, with `half_products`,
        everything but the attention and every second product (operator-level checkpointing).
        """
        full = self.forward.where(table.recompute == Recompute.FULL)
        chosen = self.core
        if half_products:
            chosen = self.forward.plus(self.core, -1.0).plus(self.products, -0.5)
        return full.plus(chosen.where(table.recompute == Recompute.SELECTIVE))


class LayerCoster:
    """Prices layers for a table of plans; holds what all operators share."""

    def __init__(self, job: Job, table: PlanTable) -> None:
        self.job = job
        self.table = table
        self.precision = table.precision
        self.tokens = table.microbatch_size * job.model.seq_len / table.cp
        self.tp_groups: Groups = groups(
            job.system, size=table.tp, stride=table.stride("tp"), world=table.world_size
        )

    def cost(self, layer: Layer) -> LayerCost:
        """Sum a layer's operators."""
        rows = len(self.table)
        forward, backward = Pass.zero(rows), Pass.zero(rows)
        core, products = Pass.zero(rows), Pass.zero(rows)
        for op in layer.operators:
            if isinstance(op, Linear):
                self._linear(op, forward, backward, products)
            else:
                self._operator(op, forward, backward, core)
        return LayerCost(forward=forward, backward=backward, core=core, products=products)

    def _operator(
        self, op: Attention | Elementwise | Lookup | Loss, forward: Pass, backward: Pass, core: Pass
    ) -> None:
        if isinstance(op, Attention):
            self._attention(op, forward, backward, core)
        elif isinstance(op, Elementwise):
            self._elementwise(op, forward, backward)
        elif isinstance(op, Lookup):
            self._lookup(op, forward, backward)
        else:
            self._loss(op, forward, backward)

    def _gemm(self, m: Array, n: Array, k: Array, **more: Array | float) -> Array:
        return gemm_time(
            self.job.device,
            self.precision.compute,
            m=m,
            n=n,
            k=k,
            value=self.precision.activation,
            **more,  # type: ignore[arg-type]
        )

    def _linear(self, op: Linear, forward: Pass, backward: Pass, products: Pass) -> None:
        tokens = self.table.microbatch_size if op.per_sequence else self.tokens
        m = np.asarray(tokens, dtype=np.float64)
        n = op.outputs / np.where(op.split is Split.COLUMN, self.table.tp, 1)
        k = op.inputs / np.where(op.split is Split.ROW, self.table.tp, 1)
        entering, leaving = self._borders(op)
        ahead = self._gemm(m, n, k)
        forward.add(ahead, 1)
        products.add(ahead, 1)
        self._expose(forward, entering[0], leaving[0])
        # backward: the input gradient (beside it sequence parallelism gathers the input again),
        # then the weight gradient beside the collective of the input gradient
        inward, weight = self._gemm(m, k, n), self._weight_gradient(m, n, k)
        backward.add(inward + weight, 2 + op.bias)
        again = np.where(self.table.sequence_parallel, entering[0], 0.0)
        self._expose(backward, self._beside(entering[1], weight), leaving[1])
        self._expose(backward, self._beside(again, inward))

    def _beside(self, collective: Array, kernel: Array) -> Array:
        """What shows of a collective that runs beside a kernel.

        The stack's share of the shorter of the two hides; the rest is the slowdown of a kernel
        that gives multiprocessors and bandwidth to the collective.
        """
        return collective - self.job.software.tp_overlap_backward * np.minimum(collective, kernel)

    def _weight_gradient(self, m: Array, n: Array, k: Array) -> Array:
        # accumulation into an fp32 buffer: fused, the GEMM reads and writes 8 bytes an element;
        # apart, a kernel reads 2 and 4 bytes and writes 4. "same" accumulates 2 + 2 -> 2.
        wide = self.table.common.gradient_precision == "fp32"
        if self.job.software.fused_gradient_accumulation:
            return self._gemm(k, n, m, extra_bytes=(8.0 if wide else 4.0) * n * k)
        return self._gemm(k, n, m) + memory_time(self.job.device, (10.0 if wide else 6.0) * n * k)

    def _borders(self, op: Linear) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        """Collectives (forward, backward) where activations enter and leave a split matrix."""
        zero = np.zeros(len(self.table))
        if op.split is Split.COLUMN:
            return self._boundary(op.inputs, reduce_forward=False), (zero, zero)
        if op.split is Split.ROW:
            return (zero, zero), self._boundary(op.outputs, reduce_forward=True)
        return (zero, zero), (zero, zero)

    def _boundary(self, width: int, *, reduce_forward: bool) -> tuple[Array, Array]:
        # a column-split matrix: identity forward, all-reduce backward; a row-split one the other
        # way round. Sequence parallelism replaces each all-reduce by a reduce-scatter and adds
        # an all-gather in the other direction (Korthikanti et al. 2022, figure 5).
        size = self.tokens * width * self.precision.activation
        whole = self._tp("all_reduce", size)
        gather, scatter = self._tp("all_gather", size), self._tp("reduce_scatter", size)
        sequence = self.table.sequence_parallel
        reduce = np.where(sequence, scatter, whole)
        spread = np.where(sequence, gather, 0.0)
        return (reduce, spread) if reduce_forward else (spread, reduce)

    def _tp(self, kind: Kind, size: Array) -> Array:
        return collective_time(self.job.system, kind, size, self.tp_groups)

    def _expose(self, which: Pass, *seconds: Array) -> None:
        total = sum(seconds, start=np.zeros(len(self.table)))
        # each collective costs the host about two launches
        which.add(
            np.zeros(len(self.table)),
            2.0 * (total > 0),
            total * (1.0 - self.job.software.tp_overlap),
        )

    def _attention(self, op: Attention, forward: Pass, backward: Pass, core: Pass) -> None:
        if op.fused:
            ahead, behind = self._flash(op)
            launches = (1, 2)
        else:
            ahead, behind = self._unfused(op)
            launches = (4, 6)
        forward.add(ahead, launches[0])
        core.add(ahead, launches[0])
        backward.add(behind, launches[1])

    def _flash(self, op: Attention) -> tuple[Array, Array]:
        # causal kernels skip the upper triangle
        seq = self.job.model.seq_len
        flops = 4.0 * self.tokens * seq * op.heads * op.head_dim / self.table.tp
        flops = flops * (0.5 if op.causal else 1.0)
        ahead_factor, behind_factor = self.job.software.attention_speed(self.job.device.id)
        device, compute = self.job.device, self.precision.compute
        ahead = flash_attention_time(
            device, compute, flops=flops, seq_len=seq, backward=False, efficiency=ahead_factor
        )
        behind = flash_attention_time(
            device,
            compute,
            flops=FLASH_BACKWARD * flops,
            seq_len=seq,
            backward=True,
            efficiency=behind_factor,
        )
        return ahead, behind

    def _unfused(self, op: Attention) -> tuple[Array, Array]:
        s = float(self.job.model.seq_len)
        rows = s / self.table.cp
        batch = self.table.microbatch_size * op.heads / self.table.tp
        scores = self._gemm(rows, np.asarray(s), np.asarray(float(op.head_dim)), batch=batch)
        values = self._gemm(rows, np.asarray(float(op.head_dim)), np.asarray(s), batch=batch)
        # softmax reads and writes the scores; dropout again, with a mask byte; backward of softmax
        # reads two and writes one
        v, drop = self.precision.activation, 1 if op.dropout else 0
        count = batch * rows * s
        ahead = self._moved(count * (2 * v + drop * (2 * v + 1)), 1 + drop)
        behind = self._moved(count * (3 * v + drop * (2 * v + 1)), 1 + drop)
        return scores + values + ahead, 2.0 * (scores + values) + behind

    def _moved(self, moved: Array, launches: float) -> Array:
        return memory_time(self.job.device, moved * self.job.software.traffic, launches)

    def _elementwise(self, op: Elementwise, forward: Pass, backward: Pass) -> None:
        split = self.table.tp if op.region is Region.TENSOR else self.table.sequence_split
        count = self.tokens * op.width / split
        v = self.precision.activation
        ahead = count * (op.forward * v + op.forward_mask)
        behind = count * (op.backward * v + op.backward_mask)
        forward.add(self._moved(ahead, op.launches[0]), op.launches[0])
        backward.add(self._moved(behind, op.launches[1]), op.launches[1])

    def _lookup(self, op: Lookup, forward: Pass, backward: Pass) -> None:
        # reads a row and writes it, adds positions (read, read, write); backward adds into rows
        tables = 1 + (op.positions > 0) + (op.token_types > 0)
        moved = self.tokens * op.width * self.precision.activation * 2.0 * tables
        forward.add(self._moved(moved, tables), tables)
        backward.add(self._moved(1.5 * moved, tables), 2 * tables)
        ahead, behind = self._boundary(op.width, reduce_forward=True)
        self._expose(forward, ahead)
        self._expose(backward, behind)

    def _loss(self, op: Loss, forward: Pass, backward: Pass) -> None:
        logits = self.tokens * op.vocab_size / self.table.tp
        moved = logits * self.job.software.loss_bytes
        forward.add(memory_time(self.job.device, FORWARD_SHARE * moved, 4), 8)
        backward.add(memory_time(self.job.device, (1.0 - FORWARD_SHARE) * moved, 2), 4)
        # maximum, target logit and sum of exponentials are all-reduced, one fp32 a token each
        self._expose(forward, 3.0 * self._tp("all_reduce", 4.0 * self.tokens))
