"""The kernels and collectives of each kind of operator, for a table of plans.

This is the only file that knows which kernels an operator has: a layer's price is their sum
(`cost/layer/layers.py`), and `cost/step/plan_kernels.py` lists them one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from parsim.arrays import Array, Num
from parsim.cost.data.buckets import added_bytes
from parsim.cost.job import Job
from parsim.cost.kernel.kernels import ACCUMULATE, CONTIGUOUS, Side, memory_excess, memory_time
from parsim.cost.kernel.quantized import (
    Sides,
    gathered_cast_time,
    product_time,
    weight_cast_time,
)
from parsim.cost.layer.attention import attention_core
from parsim.cost.layer.eager import moved_values
from parsim.cost.layer.head_copies import rank_outputs, rank_values
from parsim.cost.layer.interference import crowded_device
from parsim.cost.layer.mixture.kernels import expert_kernels
from parsim.cost.layer.networks import convolution_kernels, recurrent_kernels
from parsim.cost.layer.operator_parts import Exchange, Kernel, Kernels, PassPart, seconds_of
from parsim.cost.layer.tensor_exchanges import TensorGroups, statistics_exchanges
from parsim.model.networks import Convolution, Recurrent
from parsim.model.operators import (
    Attention,
    Elementwise,
    Experts,
    Linear,
    Lookup,
    Loss,
    Operator,
    Split,
    Timed,
)
from parsim.plan import PlanTable
from parsim.plan.precision import Quantization

GEMM = "gemm"
"""Kind of all matrix products but those of experts."""

FORWARD_SHARE = 0.4
"""Share of the loss's traffic that forward moves (the rest is backward)."""


class OperatorKernels:
    """Lists what operators run for a table of plans; holds what all of them share."""

    def __init__(self, job: Job, table: PlanTable) -> None:
        self.job = job
        self.table = table
        self.borders = TensorGroups.of(job, table)
        # where the loss beside a collective is measured, nothing reads crowded products
        measured = job.system.interference is not None
        self.crowded = job.device if measured else crowded_device(job.system)

    def of(self, op: Operator, how: Quantization | None) -> Iterator[Kernels | Exchange]:
        """Kernels of an operator in the order in which a layer adds them up, then its collectives.

        `how` is the recipe that quantises the layer's products, None for products in 16 bit.
        """
        if isinstance(op, Linear):
            yield from self._linear(op, self._of_logits if op.name == "logits" else how)
        elif isinstance(op, Attention):
            yield from attention_core(self.job, self.table, op, self._of_attention(how))
        elif isinstance(op, Elementwise):
            yield from self._elementwise(op)
            yield from statistics_exchanges(self.job, self.table, op)
        elif isinstance(op, Convolution):
            yield from convolution_kernels(self.job, self.table, op)
        elif isinstance(op, Recurrent):
            yield from recurrent_kernels(self.job, self.table, op)
        elif isinstance(op, Timed):
            yield from self._timed(op)
        elif isinstance(op, Lookup):
            yield from self._lookup(op)
        elif isinstance(op, Experts):
            yield from expert_kernels(self.job, self.table, op, how, self.crowded)
        else:
            yield from self._loss(op)

    @property
    def _of_logits(self) -> Quantization | None:
        """How logits are quantised, wherever they stand: not at all, unless the stack does."""
        return self.table.precision.quantization if self.job.software.quantized_logits else None

    def _of_attention(self, how: Quantization | None) -> Quantization | None:
        """How the core's operands are quantised: as the layer's, where the stack does at all."""
        return how if self.job.software.quantized_attention else None

    def _linear(self, op: Linear, how: Quantization | None) -> Iterator[Kernels | Exchange]:
        """Three GEMMs: output, input gradient, weight gradient; and the casts of quantised ones."""
        m, n, k = sides = self._sides(op)
        ahead = self._product(how, sides)
        crowded = ahead.seconds
        if self.crowded is not self.job.device:
            crowded = product_time(self.crowded, self.table.precision, how, sides)
        ahead = replace(ahead, part=PassPart.PRODUCT, crowded=crowded)
        inward = self._product(how, (m, k, n))
        weight = self._weight_gradient(op, how, sides)
        yield (ahead,)
        yield (*weight, inward)
        yield from self._casts(op, how, sides)
        yield from self._around(op, how, sides, (ahead.seconds, inward.seconds, weight))

    def _sides(self, op: Linear) -> Sides:
        """The sides (m, n, k) of a rank's part of a matrix product."""
        tokens = self.table.microbatch_size if op.per_sample else self.table.on_rank(op.tokens)
        m = np.asarray(tokens, dtype=np.float64)
        if op.on_sequence:
            m = m / self.table.sequence_split
        n = rank_outputs(op, self.table)
        k = op.inputs / np.where(op.split is Split.ROW, self.table.tp, 1)
        return m, n, k

    def _product(
        self,
        how: Quantization | None,
        sides: Sides,
        extra_bytes: Num = 0.0,
        launches: int = 1,
        contiguous: tuple[Side, ...] = CONTIGUOUS,
    ) -> Kernel:
        """A product of backward."""
        return Kernel(
            kind=GEMM,
            part=PassPart.BACKWARD,
            shape=sides,
            seconds=self._seconds(how, sides, extra_bytes, contiguous),
            launches=launches,
        )

    def _seconds(
        self,
        how: Quantization | None,
        sides: Sides,
        extra_bytes: Num = 0.0,
        contiguous: tuple[Side, ...] = CONTIGUOUS,
    ) -> Array:
        on = self.job.device
        return product_time(on, self.table.precision, how, sides, extra_bytes, contiguous)

    def _weight_gradient(self, op: Linear, how: Quantization | None, sides: Sides) -> Kernels:
        """The GEMM of the weight gradient and its accumulation over micro-batches.

        Fused, the GEMM reads and writes 8 bytes an element of an fp32 buffer (4 of a 16-bit one);
        apart, other kernels move `added_bytes`. Both operands lie along the layer's sides, not
        along the tokens.
        """
        m, n, k = sides
        launches = 1 + op.bias
        if self.job.software.fused_gradient_accumulation:
            extra = 2.0 * self.table.summed_bytes * n * k
            fused = self._product(how, (k, n, m), extra, launches, ("m", "n"))
            return (replace(fused, weights=True),)
        moved = added_bytes(self.job, self.table) * n * k
        gradient = self._product(how, (k, n, m), launches=launches, contiguous=("m", "n"))
        added = self._moved(PassPart.BACKWARD, ACCUMULATE, moved, 1, 0)
        return replace(gradient, weights=True), replace(added, weights=True)

    def _casts(self, op: Linear, how: Quantization | None, sides: Sides) -> Iterator[Kernels]:
        """Quantising the input forward and the output's gradient backward, and gathered weights.

        Under sequence parallelism a column-split matrix gathers its input, a row-split one the
        gradient of its output.
        """
        if how is None:
            return
        (m, n, k), shared = sides, self.table.sequence_split.astype(np.float64)
        came = {Split.COLUMN: PassPart.FORWARD, Split.ROW: PassPart.BACKWARD}.get(op.split)
        weight = weight_cast_time(self.job, how, self.table, n * k)
        for part, values in ((PassPart.FORWARD, m * k), (PassPart.BACKWARD, m * n)):
            ranks = shared if part is came else np.ones_like(shared)
            casts = gathered_cast_time(self.job, how, values, ranks)
            for size, (seconds, launches) in ((values, casts), (n * k, (weight, 0))):
                cast = Kernel(
                    kind="cast", part=part, shape=(size,), seconds=seconds, launches=launches
                )
                yield (cast,)

    def _around(
        self,
        op: Linear,
        how: Quantization | None,
        sides: Sides,
        beside: tuple[Array, Array, Kernels],
    ) -> Iterator[Exchange]:
        """What shows of the collectives around a split matrix.

        Backward, sequence parallelism gathers the input again beside the input gradient, and the
        collective of the input gradient runs beside the weight gradient. Where the stack cuts
        GEMMs into chunks, the other collectives run beside those.
        """
        (m, n, k), (ahead, inward, weight) = sides, beside
        (reduce, spread), (summed, behind) = self.borders.around(op, how)
        around = spread + summed
        chunked = self.job.software.tp_overlap and (how is None or how.chunked)
        if chunked and op.split is not Split.NONE:
            rows = m / self.table.tp
            around = self.borders.chunked(around, ahead, self._seconds(how, (rows, n, k)))
            behind = self.borders.chunked(behind, inward, self._seconds(how, (rows, k, n)))
        reduced = self.borders.beside(reduce, seconds_of(weight))
        again = self.borders.beside(spread, inward)
        yield Exchange(part=PassPart.FORWARD, exposed=around)
        yield Exchange(part=PassPart.BACKWARD, exposed=reduced + behind)
        yield Exchange(part=PassPart.BACKWARD, exposed=again)
        if op.shared is not None and op.shared.gathered:
            gathered, scattered = self.borders.heads(op, op.shared)
            yield Exchange(part=PassPart.FORWARD, exposed=gathered)
            yield Exchange(part=PassPart.BACKWARD, exposed=scattered)

    def _elementwise(self, op: Elementwise) -> Iterator[Kernels]:
        count = rank_values(op, self.table.on_rank(op.tokens), self.table)
        if op.kind == "scan":
            count = count * memory_excess(self.job.device, self.job.software.row_rate)
        precision = self.table.precision
        each = moved_values(self.job.software, op, precision.activation, precision.compute)
        ahead, behind = count * each[0], count * each[1]
        yield (self._moved(PassPart.FORWARD, f"{op.kind}_forward", ahead, op.launches[0]),)
        yield (self._moved(PassPart.BACKWARD, f"{op.kind}_backward", behind, op.launches[1]),)

    def _timed(self, op: Timed) -> Iterator[Kernels]:
        """Measured seconds: those of a call, which hold its launch on that host, and of samples."""
        images = np.asarray(self.table.on_rank(1), dtype=np.float64)
        for part, call, each in (
            (PassPart.FORWARD, op.forward_call, op.forward),
            (PassPart.BACKWARD, op.backward_call, op.backward),
        ):
            seconds = call + images * each
            yield (Kernel(kind=op.name, part=part, shape=(images,), seconds=seconds, launches=1),)

    def _lookup(self, op: Lookup) -> Iterator[Kernels | Exchange]:
        """Reads a row and writes it, adds positions (2 reads, 1 write); backward adds into rows."""
        tables, software = 1 + (op.positions > 0) + (op.token_types > 0), self.job.software
        tokens = self.table.on_rank(op.tokens)
        moved = tokens * op.width * self.table.precision.activation * 2.0 * tables
        ahead, behind = moved * software.traffic, 1.5 * moved * software.traffic
        yield (self._moved(PassPart.FORWARD, "lookup_forward", ahead, tables),)
        yield (self._moved(PassPart.BACKWARD, "lookup_backward", behind, tables, 2 * tables),)
        dense = op.vocab_size * op.width / self.table.tp * software.lookup_gradient
        yield (self._moved(PassPart.BACKWARD, ACCUMULATE, dense, 0),)
        reduced, spread = self.borders.exchange(tokens, op.width)
        yield Exchange(part=PassPart.FORWARD, exposed=reduced)
        yield Exchange(part=PassPart.BACKWARD, exposed=spread)

    def _loss(self, op: Loss) -> Iterator[Kernels | Exchange]:
        """Cross-entropy by bytes; maximum, target logit and sum are each all-reduced (fp32)."""
        tokens = self.table.on_rank(op.tokens)
        moved = tokens * op.vocab_size / self.table.tp * self.job.software.loss_bytes
        ahead, behind = FORWARD_SHARE * moved, (1.0 - FORWARD_SHARE) * moved
        yield (self._moved(PassPart.FORWARD, "loss_forward", ahead, 4, 8),)
        yield (self._moved(PassPart.BACKWARD, "loss_backward", behind, 2, 4),)
        summed = self.borders.message("all_reduce", 4.0 * tokens).seconds(self.job.system)
        yield Exchange(part=PassPart.FORWARD, exposed=3.0 * summed)

    def _moved(
        self,
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
            seconds=memory_time(self.job.device, moved, kernels, kind),
            launches=kernels if launches is None else launches,
        )
