"""Seconds of one layer's forward, backward and recomputation for one micro-batch, per plan.

A layer is the sum of its kernels plus the tensor-parallel collectives at the borders of its split
matrices. Host launches are counted apart: where the host cannot launch kernels as fast as the
device runs them, the chunk takes the host's time (cost/stages.py).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from parsim.cluster.hardware import Device
from parsim.cost.attention import attention_times
from parsim.cost.borders import Borders
from parsim.cost.crowding import crowded_device
from parsim.cost.experts import ExpertCoster
from parsim.cost.job import Job
from parsim.cost.kernels import memory_excess, memory_time
from parsim.cost.modules import launched, repeated
from parsim.cost.passes import LayerCost, Pass
from parsim.cost.quantized import cast_time, product_time, quantization_of, weight_cast_time
from parsim.cost.residuals import measured_factor
from parsim.model.operators import (
    Attention,
    Elementwise,
    Experts,
    Layer,
    Linear,
    Lookup,
    Loss,
    Operator,
    Region,
    Split,
)
from parsim.plan import Plan, PlanTable
from parsim.plan.record import Quantization

Array = NDArray[np.float64]

FORWARD_SHARE = 0.4
"""Share of the loss's traffic that forward moves (the rest is backward)."""


SPLIT, SEQUENCE = "split_", "sequence_"
"""What the kinds of measured layers of tensor-parallel plans begin with."""
WAITED = "_waited"
"""What stands behind a part whose points say how much of what is modelled as exposed it waits."""


def split_of(plan: Plan) -> str:
    """What the kind of a measured layer of a plan begins with."""
    if plan.tp == 1:
        return ""
    return SEQUENCE if plan.sequence_parallel else SPLIT


class LayerCoster:
    """Prices layers for a table of plans; holds what all operators share."""

    def __init__(self, job: Job, table: PlanTable) -> None:
        self.job = job
        self.table = table
        self.tokens: Array = table.microbatch_size * job.model.seq_len / table.cp
        self.borders = Borders.of(job, table, self.tokens)
        # where the loss beside a collective is measured, nothing reads crowded products
        measured = job.system.interference is not None
        self.crowded = job.device if measured else crowded_device(job.system)

    def cost(self, layer: Layer) -> LayerCost:
        """Sum a layer's operators."""
        total = LayerCost.zero(len(self.table))
        how = quantization_of(self.job.model, layer, self.table.precision)
        for op in layer.operators:
            self._add(op, total, how)
        self._again(layer, total, how)
        self._graphed(layer, total, how)
        return self._measured(layer, total)

    def _graphed(self, layer: Layer, to: LayerCost, how: Quantization | None) -> None:
        """Launches that CUDA graphs spare the host: of whole parts; experts know their own."""
        graphs = self.job.software.graphs
        if not graphs:
            return
        alone = LayerCost.zero(len(self.table))
        for op in launched(layer, graphs):
            self._add(op, alone, how)
        to.forward.launches = alone.forward.launches
        to.backward.launches = alone.backward.launches

    def _again(self, layer: Layer, to: LayerCost, how: Quantization | None) -> None:
        """The forward of what the plan computes again by name (`cost/modules.py`)."""
        names = self.table.common.recompute_modules
        if not names:
            return
        alone = LayerCost.zero(len(self.table))
        for op in repeated(layer, names):
            self._add(op, alone, how)
        if "moe_act" in names and layer.experts is not None:
            price = self._experts_of(layer.experts, how)
            alone.forward.add(price.activation(3.0), 1)
        to.modules.add(alone.forward.kernels, alone.forward.launches)
        to.modules.exposed = to.modules.exposed + alone.forward.exposed

    def _measured(self, layer: Layer, cost: LayerCost) -> LayerCost:
        """The layer as a calibration found whole ones to take, beside the sum of their kernels."""
        if not self.job.device.residuals:
            return cost
        forward = self._whole(f"{layer.name}_forward", cost.forward.seconds)
        backward = self._whole(f"{layer.name}_backward", cost.backward.seconds)
        found = cost.scaled(forward, backward)
        name = f"{layer.name}{WAITED}"
        return replace(
            found,
            forward=self._waiting(f"{name}_forward", cost.forward, found.forward),
            backward=self._waiting(f"{name}_backward", cost.backward, found.backward),
        )

    def _whole(self, kind: str, seconds: Array) -> Array:
        """A layer's factor: of whole layers, of split ones, of those with sequence parallelism."""
        residuals = self.job.device.residuals
        found = np.asarray(measured_factor(residuals, kind, seconds))
        for prefix, rows in self._splits():
            if prefix + kind in residuals:
                own = measured_factor(residuals, prefix + kind, seconds)
                found = np.where(rows, own, found)
        return found

    def _waiting(self, kind: str, modelled: Pass, found: Pass) -> Pass:
        """The measured pass with the share that a calibration saw it wait for its collectives."""
        residuals, exposed = self.job.device.residuals, found.exposed
        for prefix, rows in self._splits():
            if prefix + kind in residuals:
                factor = measured_factor(residuals, prefix + kind, modelled.exposed)
                exposed = np.where(rows, found.exposed * factor, exposed)
        return found.waiting(exposed)

    def _splits(self) -> tuple[tuple[str, NDArray[np.bool_]], ...]:
        return (SPLIT, self.table.tp > 1), (SEQUENCE, self.table.sequence_parallel)

    def _add(self, op: Operator, to: LayerCost, how: Quantization | None) -> None:
        if isinstance(op, Linear):
            # logits stay in 16 bit wherever they stand
            self._linear(op, to, None if op.name == "logits" else how)
        elif isinstance(op, Attention):
            self._attention(op, to)
        elif isinstance(op, Elementwise):
            self._elementwise(op, to)
        elif isinstance(op, Lookup):
            self._lookup(op, to)
        elif isinstance(op, Experts):
            self._experts(op, to, how)
        else:
            self._loss(op, to)

    def _linear(self, op: Linear, to: LayerCost, how: Quantization | None) -> None:
        """Three GEMMs: output, input gradient, weight gradient; and the casts of quantised ones.

        Backward, sequence parallelism gathers the input again beside the input gradient, and the
        collective of the input gradient runs beside the weight gradient. Where the stack cuts
        GEMMs into chunks, the other collectives run beside those.
        """
        tokens = self.table.microbatch_size if op.per_sequence else self.tokens
        m = np.asarray(tokens, dtype=np.float64)
        if op.on_sequence:
            m = m / self.table.sequence_split
        n = op.outputs / np.where(op.split is Split.COLUMN, self.table.tp, 1)
        k = op.inputs / np.where(op.split is Split.ROW, self.table.tp, 1)
        ahead, inward = self._gemm(how, m, n, k), self._gemm(how, m, k, n)
        weight = self._weight_gradient(how, m, n, k)
        to.forward.add(ahead, 1)
        to.products.add(ahead, 1)
        same = self.crowded is self.job.device
        to.crowded.add(ahead if same else self._gemm(how, m, n, k, device=self.crowded), 1)
        to.backward.add(inward + weight, 2 + op.bias)
        self._casts(how, m, n, k, to)
        border = self.borders.around(op, how)
        around, behind = border.entering_forward + border.leaving_forward, border.leaving_backward
        if self.job.software.tp_overlap and op.split is not Split.NONE:
            rows = m / self.table.tp
            around = self.borders.chunked(around, ahead, self._gemm(how, rows, n, k))
            behind = self.borders.chunked(behind, inward, self._gemm(how, rows, k, n))
        to.forward.expose(around)
        to.backward.expose(self.borders.beside(border.entering_backward, weight) + behind)
        to.backward.expose(self.borders.beside(border.entering_forward, inward))

    def _experts(self, op: Experts, to: LayerCost, how: Quantization | None) -> None:
        """Routing and products of experts; tokens go there and back in either direction."""
        found = self._experts_of(op, how).times(self.crowded)
        to.forward.add(found.forward, found.forward_launches)
        to.products.add(found.products, 2)
        to.crowded.add(found.crowded, 2)
        to.backward.add(found.backward, found.backward_launches)
        if not self.job.software.fused_gradient_accumulation:
            wide = self.table.common.gradient_precision == "fp32"
            held = op.expert_parameters / self.table.expert_ranks
            moved = (10.0 if wide else 6.0) * held
            to.backward.add(memory_time(self.job.device, moved, kind="accumulate"), 2)
        for _ in range(2):
            to.forward.expose(found.moving)
            to.routed.expose(found.moving)
            to.backward.expose(found.moving)

    def _experts_of(self, op: Experts, how: Quantization | None) -> ExpertCoster:
        tokens = self.tokens / self.table.sequence_split
        return ExpertCoster(job=self.job, table=self.table, op=op, tokens=tokens, how=how)

    def _casts(self, how: Quantization | None, m: Array, n: Array, k: Array, to: LayerCost) -> None:
        """Quantising the input forward and the output's gradient backward, and gathered weights."""
        if how is None:
            return
        device = self.job.device
        to.forward.add(*cast_time(device, how, m * k))
        to.backward.add(*cast_time(device, how, m * n))
        weight = weight_cast_time(self.job, how, self.table, n * k)
        to.forward.add(weight, 0)
        to.backward.add(weight, 0)

    def _gemm(
        self,
        how: Quantization | None,
        m: Array,
        n: Array,
        k: Array,
        extra_bytes: Array | float = 0.0,
        device: Device | None = None,
    ) -> Array:
        used, on = self.table.precision, device or self.job.device
        return product_time(on, used, how, m=m, n=n, k=k, extra_bytes=extra_bytes)

    def _weight_gradient(self, how: Quantization | None, m: Array, n: Array, k: Array) -> Array:
        """The GEMM of the weight gradient and its accumulation over micro-batches.

        Fused, the GEMM reads and writes 8 bytes an element of an fp32 buffer; apart, a kernel reads
        2 and 4 bytes and writes 4. "same" accumulates 2 + 2 into 2.
        """
        wide = self.table.common.gradient_precision == "fp32"
        if self.job.software.fused_gradient_accumulation:
            return self._gemm(how, k, n, m, extra_bytes=(8.0 if wide else 4.0) * n * k)
        moved = (10.0 if wide else 6.0) * n * k
        added = memory_time(self.job.device, moved, kind="accumulate")
        return self._gemm(how, k, n, m) + added

    def _attention(self, op: Attention, to: LayerCost) -> None:
        core = attention_times(self.job, self.table, op)
        to.forward.add(core.forward, core.forward_launches)
        to.core.add(core.forward, core.forward_launches)
        to.backward.add(core.backward, core.backward_launches)
        to.forward.expose(core.exposed_forward)
        to.core.expose(core.exposed_forward)
        to.backward.expose(core.exposed_backward)

    def _elementwise(self, op: Elementwise, to: LayerCost) -> None:
        split = self.table.tp if op.region is Region.TENSOR else self.table.sequence_split
        count = self.tokens * op.width / split
        if op.kind == "scan":
            count = count * memory_excess(self.job.device, self.job.software.row_rate)
        value = self.table.precision.activation
        ahead = count * (op.forward * value + op.forward_mask)
        behind = count * (op.backward * value + op.backward_mask)
        one, two = op.launches
        to.forward.add(self._moved(ahead, one, f"{op.kind}_forward"), one)
        to.backward.add(self._moved(behind, two, f"{op.kind}_backward"), two)

    def _moved(self, moved: Array, launches: float, kind: str) -> Array:
        return memory_time(self.job.device, moved * self.job.software.traffic, launches, kind)

    def _lookup(self, op: Lookup, to: LayerCost) -> None:
        """Reads a row and writes it, adds positions (2 reads, 1 write); backward adds into rows."""
        tables = 1 + (op.positions > 0) + (op.token_types > 0)
        moved = self.tokens * op.width * self.table.precision.activation * 2.0 * tables
        to.forward.add(self._moved(moved, tables, "lookup_forward"), tables)
        to.backward.add(self._moved(1.5 * moved, tables, "lookup_backward"), 2 * tables)
        dense = op.vocab_size * op.width / self.table.tp * self.job.software.lookup_gradient
        to.backward.add(memory_time(self.job.device, dense, 0, "accumulate"), 0)
        ahead, behind = self.borders.exchange(op.width)
        to.forward.expose(ahead)
        to.backward.expose(behind)

    def _loss(self, op: Loss, to: LayerCost) -> None:
        """Cross-entropy by bytes; maximum, target logit and sum are each all-reduced (fp32)."""
        moved = self.tokens * op.vocab_size / self.table.tp * self.job.software.loss_bytes
        ahead, behind = FORWARD_SHARE * moved, (1.0 - FORWARD_SHARE) * moved
        to.forward.add(memory_time(self.job.device, ahead, 4, "loss_forward"), 8)
        to.backward.add(memory_time(self.job.device, behind, 2, "loss_backward"), 4)
        to.forward.expose(3.0 * self.borders.time("all_reduce", 4.0 * self.tokens))
