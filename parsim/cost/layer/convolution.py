"""Kernels of a convolution: three products, and turning layouts round where kernels ask for it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from parsim.arrays import Array
from parsim.cost.job import Job
from parsim.cost.kernel.convolutions import (
    Direction,
    convolution_time,
    on_matrix_units,
    product_sides,
)
from parsim.cost.kernel.kernels import memory_time
from parsim.cost.layer.passes import Kernel, Kernels, PassPart
from parsim.model.convolution import Convolution
from parsim.plan import PlanTable

TURNED = 2.0
"""Bytes of a value that changes its layout, over those of the value: read and written."""


def convolution_kernels(job: Job, table: PlanTable, op: Convolution) -> Iterator[Kernels]:
    """Forward, weight gradient, and the input's gradient where anybody asks for it.

    Kernels of GPUs' matrix units want channels last. A stack that stores images channels first
    turns input and output round in every direction: (in + out) values, read and written.

    Source: A100 in tf32 without channels last spends 32 % of its kernels' time on that beside 59 %
    on the products (pytorch issue 81940).
    Leaves out: weights, which are small, and turned tensors that two kernels share.
    """
    forward = _product(job, table, op, "forward", PassPart.PRODUCT, 1 + op.bias)
    yield (forward,)
    backward = [_product(job, table, op, "weight", PassPart.BACKWARD, 1 + op.bias)]
    if op.input_gradient:
        backward.append(_product(job, table, op, "data", PassPart.BACKWARD, 1))
    yield tuple(backward)
    if not turns(job, table):
        return
    for part, times in ((PassPart.FORWARD, 1), (PassPart.BACKWARD, len(backward))):
        yield (_turned(job, table, op, part, times),)


def turns(job: Job, table: PlanTable) -> bool:
    """Whether the stack's layout is not that of the kernels."""
    compute, device = table.precision.compute, job.device
    first = compute not in job.software.channels_last
    return first and on_matrix_units(device, compute) and device.gemm_tiles != "core"


def _product(
    job: Job,
    table: PlanTable,
    op: Convolution,
    direction: Direction,
    part: PassPart,
    launches: int,
) -> Kernel:
    precision, images = table.precision, table.on_rank(op.tokens)
    args = job.device, precision.compute, op, direction, images, float(precision.activation)
    seconds = convolution_time(*args)
    return Kernel(
        kind=f"conv_{direction}",
        part=part,
        shape=product_sides(op, direction, images),
        seconds=seconds,
        launches=launches,
        crowded=seconds if part is PassPart.PRODUCT else None,
    )


def _turned(job: Job, table: PlanTable, op: Convolution, part: PassPart, times: int) -> Kernel:
    values = table.on_rank(op.values_in + op.values_out)
    moved: Array = np.asarray(times * TURNED * table.precision.activation * values)
    seconds = memory_time(job.device, moved, 2 * times, "layout")
    return Kernel(kind="layout", part=part, shape=(moved,), seconds=seconds, launches=2 * times)
