"""Seconds of the grouped products of all experts on a rank, forward and backward.

With h the width of a token and f that of an expert on a rank, rows (R, h) are multiplied by a
matrix (h, f) of each expert, or by two where they are gated, and what comes out by one (f, h).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from parsim.arrays import Array
from parsim.cluster.hardware import Device
from parsim.cost.job import Job
from parsim.cost.kernel.kernels import grouped_gemm_time
from parsim.cost.kernel.quantized import operands
from parsim.model.operators import Experts
from parsim.plan import PlanTable
from parsim.plan.precision import Quantization


def expert_width(op: Experts, table: PlanTable) -> Array:
    """Width of an expert on a rank, (B,)."""
    return np.asarray(op.ffn_hidden_size / table.etp)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertProducts:
    """The products of one layer's experts: so many `rows` on so many `local` experts, (B,)."""

    job: Job
    table: PlanTable
    op: Experts
    how: Quantization | None
    rows: Array
    local: Array

    def forward(self, device: Device) -> Array:
        """Both products of a forward."""
        h, f = np.asarray(float(self.op.width)), expert_width(self.op, self.table)
        first = self._grouped(device, self.op.halves * f, h)
        return first + self._grouped(device, h, f)

    def input_gradients(self, device: Device) -> Array:
        """The gradients of what each product has multiplied."""
        h, f = np.asarray(float(self.op.width)), expert_width(self.op, self.table)
        return self._grouped(device, h, self.op.halves * f) + self._grouped(device, f, h)

    def weight_gradients(self, device: Device) -> Iterator[Array]:
        """The gradients of either matrix, one by one."""
        h, f = np.asarray(float(self.op.width)), expert_width(self.op, self.table)
        for n, k in ((self.op.halves * f, h), (h, f)):
            yield self._grouped(device, n, k, weights=True)

    def _grouped(self, device: Device, n: Array, k: Array, *, weights: bool = False) -> Array:
        """One product of all local experts."""
        used = self.table.precision
        on, name, value = operands(device, used, self.how)
        kept = self.table.summed_bytes
        if not self.job.software.fused_gradient_accumulation:
            kept = 0.5 * used.activation  # written once, added by a kernel of its own
        return grouped_gemm_time(
            on,
            name,
            experts=self.local,
            tokens=self.rows / self.local,
            n=n,
            k=k,
            weight_gradient=weights,
            value=value,
            gradient_value=kept,
        )
