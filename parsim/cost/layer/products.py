"""The kernels and collectives of a matrix product: three GEMMs, casts, what is sent around them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from parsim.arrays import Array, Num
from parsim.cluster.hardware import Device
from parsim.cost.data.buckets import added_bytes
from parsim.cost.job import Job
from parsim.cost.kernel.kernels import ACCUMULATE, CONTIGUOUS, Side
from parsim.cost.kernel.quantized import (
    Sides,
    gathered_cast_time,
    product_time,
    weight_cast_time,
)
from parsim.cost.layer.head_copies import rank_outputs
from parsim.cost.layer.interference import crowded_device
from parsim.cost.layer.operator_parts import (
    Exchange,
    Kernel,
    Kernels,
    PassPart,
    moved_kernel,
    seconds_of,
)
from parsim.cost.layer.tensor_exchanges import TensorGroups
from parsim.model.adapters import is_first_beside_columns
from parsim.model.operators import Linear, Split
from parsim.plan import PlanTable
from parsim.plan.precision import Quantization

GEMM = "gemm"
"""Kind of all matrix products but those of experts."""


class Products:
    """Lists what matrix products run for a table of plans; holds what all of them share."""

    def __init__(self, job: Job, table: PlanTable) -> None:
        self.job = job
        self.table = table
        self.borders = TensorGroups.of(job, table)
        # where the loss beside a collective is measured, nothing reads crowded products
        measured = job.system.interference is not None
        self.crowded = job.device if measured else crowded_device(job.system)

    def of(self, op: Linear, how: Quantization | None) -> Iterator[Kernels | Exchange]:
        """Three GEMMs: output, input gradient, weight gradient; and the casts of quantised ones.

        A frozen weight has no gradient.
        """
        m, n, k = sides = self._sides(op)
        ahead = self._product(how, sides)
        crowded = ahead.seconds
        if self.crowded is not self.job.device:
            crowded = self._seconds(how, sides, on=self.crowded)
        ahead = replace(ahead, part=PassPart.PRODUCT, crowded=crowded)
        inward = self._product(how, (m, k, n))
        weight = self._weight_gradient(op, how, sides) if op.trained else ()
        yield (ahead,)
        yield (*weight, inward)
        yield from self._casts(op, how, sides)
        yield from self._around(op, how, sides, (ahead.seconds, inward.seconds, weight))

    def _sides(self, op: Linear) -> Sides:
        """The sides (m, n, k) of a rank's part of a matrix product."""
        tokens = self.table.microbatch_size if op.per_sample else self.table.on_rank(op.tokens)
        m = np.asarray(tokens, dtype=np.float64)
        if op.on_sequence or (self.job.software.eager and is_first_beside_columns(op)):
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
        on: Device | None = None,
    ) -> Array:
        """Seconds on the job's device or another, at the recipe's rate for each plan."""

        def at(recipe: Quantization | None) -> Array:
            device, used = on or self.job.device, self.table.precision
            return product_time(device, used, recipe, sides, extra_bytes, contiguous)

        if how is None or how.divided_rate is None:
            return at(how)
        divided = replace(how, rate=how.divided_rate)
        return np.where(self.table.tp > 1, at(divided), at(how))

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
        added = moved_kernel(self.job, PassPart.BACKWARD, ACCUMULATE, moved, 1, 0)
        return replace(gradient, weights=True), replace(added, weights=True)

    def _casts(self, op: Linear, how: Quantization | None, sides: Sides) -> Iterator[Kernels]:
        """Quantising the input forward and the output's gradient backward, and gathered weights.

        Under sequence parallelism a column-split matrix gathers its input, a row-split one the
        gradient of its output. A column-split one's input is a norm's output.
        """
        if how is None:
            return
        (m, n, k), shared = sides, self.table.sequence_split.astype(np.float64)
        came = {Split.COLUMN: PassPart.FORWARD, Split.ROW: PassPart.BACKWARD}.get(op.split)
        weight = weight_cast_time(self.job, how, self.table, n * k)
        for part, values in ((PassPart.FORWARD, m * k), (PassPart.BACKWARD, m * n)):
            ranks = shared if part is came else np.ones_like(shared)
            normed = part is PassPart.FORWARD and op.split is Split.COLUMN
            casts = gathered_cast_time(
                self.job, how, values, ranks, trained=op.trained, normed=normed
            )
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

        Backward, sequence parallelism gathers the input again beside the input gradient, for that
        of a weight, and the
        collective of the input gradient runs beside the weight gradient. Where the stack cuts
        GEMMs into chunks, the other collectives run beside those.

        Matrices that share no exchange have one each, forward of their input and backward of its
        gradient; what came forward is kept, not gathered again.

        Source: torch's `ColwiseParallel` of each matrix by itself. A trace of KempnerForge (commit
        a7f8346) has 12 gathers and 8 reductions for each layer and micro-batch with all repeated,
        where 6 of either are needed.
        Leaves out: the memory of gathered inputs.
        """
        ahead, inward, weight = beside
        (reduce, spread), (summed, behind) = self.borders.around(op, how)
        around = spread + summed
        chunked = self.job.software.tp_overlap and (how is None or how.chunked)
        if chunked and op.split is not Split.NONE:
            around, behind = self._chunked(op, how, sides, (around, behind), (ahead, inward))
        made = seconds_of(weight) if op.trained else np.zeros_like(inward)
        reduced = self.borders.beside(reduce, made)
        regathered = op.trained and self.job.software.joined_inputs
        again = self.borders.beside(spread, inward) * regathered
        yield Exchange(part=PassPart.FORWARD, exposed=around)
        yield Exchange(part=PassPart.BACKWARD, exposed=reduced + behind)
        yield Exchange(part=PassPart.BACKWARD, exposed=again)
        if op.shared is not None and op.shared.gathered:
            gathered, scattered = self.borders.heads(op, op.shared)
            yield Exchange(part=PassPart.FORWARD, exposed=gathered)
            yield Exchange(part=PassPart.BACKWARD, exposed=scattered)

    def _chunked(
        self,
        op: Linear,
        how: Quantization | None,
        sides: Sides,
        exchanges: tuple[Array, Array],
        products: tuple[Array, Array],
    ) -> tuple[Array, Array]:
        """What shows of the exchanges forward and behind, which run beside chunks of products.

        Where the stack has rings, gathers take one in every precision, and reductions (forward of
        a row-split matrix) that of quantised products; 16-bit reductions are pipelined kernels.

        Source: the stack's `tp_rings`, with its configurations in `software.yaml`.
        """
        (m, n, k), (around, behind), (ahead, inward) = sides, exchanges, products
        rows, borders = m / self.table.tp, self.borders
        chunk, back = self._seconds(how, (rows, n, k)), self._seconds(how, (rows, k, n))
        reduces = op.split is Split.ROW
        if not self.job.software.tp_rings:
            around = borders.chunked(around, ahead, chunk)
            return around, borders.chunked(behind, inward, back)
        if reduces and how is None:
            return borders.chunked(around, ahead, chunk), borders.ringed(behind, inward, back)
        added = (self.table.tp + 1.0) * rows * n * self.table.precision.activation * reduces
        return borders.ringed(around, ahead, chunk, added), borders.ringed(behind, inward, back)
