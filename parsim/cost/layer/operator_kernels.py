"""The kernels and collectives of each kind of operator, for a table of plans.

With the modules that it asks (products, attention, networks, mixture) it alone knows which kernels
an operator has: a layer's price is their sum (`cost/layer/layers.py`), and
`cost/step/plan_kernels.py` lists them one by one.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from parsim.cost.job import Job
from parsim.cost.kernel.kernels import ACCUMULATE, memory_excess
from parsim.cost.kernel.quantized import recipe_of
from parsim.cost.layer.attention import attention_core
from parsim.cost.layer.eager import PERSISTENT, moved_values, stays_on_chip
from parsim.cost.layer.head_copies import rank_values
from parsim.cost.layer.mixture.kernels import expert_kernels
from parsim.cost.layer.networks import convolution_kernels, recurrent_kernels
from parsim.cost.layer.operator_parts import Exchange, Kernel, Kernels, PassPart, moved_kernel
from parsim.cost.layer.products import Products
from parsim.cost.layer.tensor_exchanges import statistics_exchanges
from parsim.model.networks import Convolution, Recurrent
from parsim.model.operators import (
    Attention,
    Elementwise,
    Experts,
    Linear,
    Lookup,
    Loss,
    Operator,
    Timed,
)
from parsim.model.transformer_operators import LOGITS
from parsim.plan import PlanTable
from parsim.plan.precision import FULL, Quantization

FORWARD_SHARE = 0.4
"""Share of the loss's traffic that forward moves (the rest is backward)."""


class OperatorKernels:
    """Lists what operators run for a table of plans; holds what all of them share."""

    def __init__(self, job: Job, table: PlanTable) -> None:
        self.job = job
        self.table = table
        self.products = Products(job, table)
        self.borders = self.products.borders

    def of(self, op: Operator, how: Quantization | None) -> Iterator[Kernels | Exchange]:
        """Kernels of an operator in the order in which a layer adds them up, then its collectives.

        `how` is the recipe that quantises the layer's products, None for products in 16 bit.
        """
        if isinstance(op, Linear):
            yield from self._linear(op, how)
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
            yield from expert_kernels(self.job, self.table, op, how, self.products.crowded)
        else:
            yield from self._loss(op)

    def _linear(self, op: Linear, how: Quantization | None) -> Iterator[Kernels | Exchange]:
        """A product, and the gather of all words behind that of logits where the stack has one."""
        if op.name != LOGITS:
            yield from self.products.of(op, how)
            return
        yield from self.products.of(op, self._of_logits)
        if self.job.software.whole_logits:
            yield Exchange(part=PassPart.FORWARD, exposed=self.borders.logits(op))

    @property
    def _of_logits(self) -> Quantization | None:
        """How logits are quantised, wherever they stand: not at all, unless the stack does."""
        how = recipe_of(self.job, self.table.precision)
        return how if self.job.software.quantized_logits else None

    def _of_attention(self, how: Quantization | None) -> Quantization | None:
        """How the core's operands are quantised: as the layer's, where the stack does at all."""
        return how if self.job.software.quantized_attention else None

    def _elementwise(self, op: Elementwise) -> Iterator[Kernels]:
        count = rank_values(op, self.table.on_rank(op.tokens), self.table)
        if op.kind == "scan":
            count = count * memory_excess(self.job.device, self.job.software.row_rate)
        precision = self.table.precision
        each = moved_values(self.job.software, op, precision.activation, precision.compute)
        kept = stays_on_chip(self.job, precision, op, count)
        pairs = zip(PERSISTENT, each, strict=True)
        moved = (np.where(kept, values * FULL, usual) for values, usual in pairs)
        ahead, behind = (count * values for values in moved)
        yield (
            moved_kernel(self.job, PassPart.FORWARD, f"{op.kind}_forward", ahead, op.launches[0]),
        )
        yield (
            moved_kernel(
                self.job, PassPart.BACKWARD, f"{op.kind}_backward", behind, op.launches[1]
            ),
        )

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
        """Reads a row and writes it, adds positions (2 reads, 1 write); backward adds into rows.

        Nothing behind it needs a gradient, so that there is no backward of a frozen table.
        """
        tables, software = 1 + (op.positions > 0) + (op.token_types > 0), self.job.software
        tokens = self.table.on_rank(op.tokens)
        moved = tokens * op.width * self.table.precision.activation * 2.0 * tables
        ahead, behind = moved * software.traffic, 1.5 * moved * software.traffic
        reduced, spread = self.borders.exchange(tokens, op.width)
        yield (moved_kernel(self.job, PassPart.FORWARD, "lookup_forward", ahead, tables),)
        yield Exchange(part=PassPart.FORWARD, exposed=reduced)
        if not op.trained:
            return
        yield (
            moved_kernel(
                self.job, PassPart.BACKWARD, "lookup_backward", behind, tables, 2 * tables
            ),
        )
        dense = op.vocab_size * op.width / self.table.tp * software.lookup_gradient
        yield (moved_kernel(self.job, PassPart.BACKWARD, ACCUMULATE, dense, 0),)
        yield Exchange(part=PassPart.BACKWARD, exposed=spread)

    def _loss(self, op: Loss) -> Iterator[Kernels | Exchange]:
        """Cross-entropy by bytes; of split logits three fp32 sums of each token are all-reduced."""
        tokens = self.table.on_rank(op.tokens)
        words = op.vocab_size / (1 if self.job.software.whole_logits else self.table.tp)
        moved = tokens * words * self.job.software.loss_bytes
        ahead, behind = FORWARD_SHARE * moved, (1.0 - FORWARD_SHARE) * moved
        yield (moved_kernel(self.job, PassPart.FORWARD, "loss_forward", ahead, 4, 8),)
        yield (moved_kernel(self.job, PassPart.BACKWARD, "loss_backward", behind, 2, 4),)
        if not self.job.software.whole_logits:
            summed = self.borders.message("all_reduce", 4.0 * tokens).seconds(self.job.system)
            yield Exchange(part=PassPart.FORWARD, exposed=3.0 * summed)
