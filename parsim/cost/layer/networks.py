"""Kernels of convolutions, three products and turned layouts, and of recurrent layers, by steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from parsim.arrays import Array
from parsim.cost.job import Job
from parsim.cost.kernel.convolutions import (
    convolution_time,
    on_matrix_units,
    product_sides,
)
from parsim.cost.kernel.kernels import gemm_time, memory_excess, memory_time
from parsim.cost.kernel.windows import Ways
from parsim.cost.layer.operator_parts import Kernel, Kernels, PassPart
from parsim.model.networks import Convolution, Direction, Recurrent
from parsim.plan import PlanTable

TURNED = 2.0
"""Bytes of a value that changes its layout, over those of the value: read and written."""
TURNED_VALUES = 4.8e9
"""Values a second that a multiprocessor reads or writes in kernels that change layouts."""


def convolution_kernels(job: Job, table: PlanTable, op: Convolution) -> Iterator[Kernels]:
    """Forward, weight gradient, and the input's gradient where anybody asks for it.

    Kernels of GPUs' matrix units want channels last. A stack that stores images channels first
    turns input and output round in every direction: (in + out) values, read and written, value by
    value: faster memories of 16-bit values wait for the multiprocessors.

    Source: A100 in tf32 without channels last spends 32 % of its kernels' time on that beside 59 %
    on the products (pytorch issue 81940); values a second by 9 runs of ResNet-50 in 16 bit on A10,
    A100 and H100 (lambda_resnet50_2023): the memory's rate would leave them 18.5 % off, this 4.5.
    Leaves out: weights, which are small, and turned tensors that two kernels share.
    """
    forward = _product(job, table, op, "forward", PassPart.PRODUCT, 1)
    yield (forward,)
    weight = _product(job, table, op, "weight", PassPart.BACKWARD, 1)
    backward = [replace(weight, weights=True)]
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
    stack = job.software
    have = Ways(cudnn=stack.cudnn, workspace=stack.convolution_workspace)
    seconds = convolution_time(*args, have)
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
    moved = moved * memory_excess(job.device, TURNED_VALUES * table.precision.activation)
    seconds = memory_time(job.device, moved, 2 * times, "layout")
    return Kernel(kind="layout", part=part, shape=(moved,), seconds=seconds, launches=2 * times)


STEP = {PassPart.PRODUCT: 1.0, PassPart.BACKWARD: 1.4}
"""A step's fixed time over that of a forward step: 29 us forward and 40 us backward (V100)."""
FIXED = 25e-6
"""Seconds of a step of a persistent kernel beside its product: DeepBench, 583 recurrent layers;
29 us of an LSTM's and 14 us of a GRU's forward on V100 in 16 bit, 42 us in fp32."""


def recurrent_kernels(job: Job, table: PlanTable, op: Recurrent) -> Iterator[Kernels]:
    """Inputs at once, states one after another; backward the same, and both weights' gradients.

    tokens x (a + product of (batch, hidden, gates hidden)) for each direction.

    Source: DeepBench's recurrent layers, within 10 to 27 % on V100 in 16 bit.
    Leaves out: stacked layers as a wavefront, which overlap on one device.
    """
    batch = np.asarray(table.on_rank(1), dtype=np.float64)
    wide, rows = float(op.gates * op.hidden), batch * op.tokens
    inputs, hidden = float(op.inputs), float(op.hidden)
    around = _step(job, table, op, batch, PassPart.PRODUCT)
    yield (_gemm(job, table, (rows, wide, inputs), op, PassPart.PRODUCT), around)
    weight = _gemm(job, table, (inputs + hidden, wide, rows), op, PassPart.BACKWARD)
    yield (
        _gemm(job, table, (rows, inputs, wide), op, PassPart.BACKWARD),
        replace(weight, weights=True),
        _step(job, table, op, batch, PassPart.BACKWARD),
    )
    moved = rows * op.directions * (op.gates + 2.0) * hidden * table.precision.activation
    for part, times in ((PassPart.FORWARD, 2.0), (PassPart.BACKWARD, 3.0)):
        seconds = memory_time(job.device, times * moved, 0, f"{op.name}_cell")
        shape = (np.asarray(times * moved),)
        yield (Kernel(kind=f"{op.name}_cell", part=part, shape=shape, seconds=seconds, launches=0),)


def _gemm(
    job: Job, table: PlanTable, sides: tuple[Array | float, ...], op: Recurrent, part: PassPart
) -> Kernel:
    """A product of all steps, in each direction of the layer."""
    m, n, k = (np.asarray(side, dtype=np.float64) for side in sides)
    seconds = _seconds(job, table, m, n, k)
    return Kernel(
        kind="gemm",
        part=part,
        shape=(m, n, k),
        seconds=seconds,
        launches=op.directions,
        runs=op.directions,
    )


def _step(job: Job, table: PlanTable, op: Recurrent, batch: Array, part: PassPart) -> Kernel:
    """One step's product of the state with its weights, and what a step costs beside it."""
    n, k = float(op.gates * op.hidden), float(op.hidden)
    product = _seconds(job, table, batch, np.asarray(n), np.asarray(k)) - job.device.gemm_latency
    fixed = STEP[part] * FIXED if job.device.gemm_tiles != "core" else job.device.gemm_latency
    return Kernel(
        kind=f"{op.name}_step",
        part=part,
        shape=(batch, n, k),
        seconds=product + fixed,
        launches=op.directions,
        runs=op.tokens * op.directions,
    )


def _seconds(job: Job, table: PlanTable, m: Array, n: Array, k: Array) -> Array:
    precision = table.precision
    value = float(precision.activation)
    return gemm_time(job.device, precision.compute, m=m, n=n, k=k, value=value)
