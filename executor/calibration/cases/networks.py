"""Kernels of networks of images: convolutions in three directions, and what passes over tensors.

A convolution's coordinates among measured points are the sides of its product, as its price has
them; the sizes beside these say which product it is, and count as no coordinates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from executor.calibration.cases import kinds
from executor.calibration.cases.workloads import TimedCase, products
from parsim.cost.job import Job
from parsim.cost.kernel.convolutions import product_sides
from parsim.model.networks import Convolution, Direction
from parsim.model.operators import Elementwise, Linear, Operator
from parsim.plan import Plan, precision

DIRECTIONS: Mapping[str, Direction] = {
    kinds.CONV_FORWARD: "forward",
    kinds.CONV_DATA: "data",
    kinds.CONV_WEIGHT: "weight",
}
"""Which way a kind of convolution goes."""


def network_cases(job: Job, plan: Plan) -> Iterator[TimedCase]:
    """Every kernel of a network's layers that can be run by itself, for one micro-batch."""
    for layer in job.model.layers:
        for op in layer.operators:
            yield from _of_operator(job, plan, op)


def _of_operator(job: Job, plan: Plan, op: Operator) -> Iterator[TimedCase]:
    images = plan.microbatch_size
    if isinstance(op, Convolution):
        for kind, direction in DIRECTIONS.items():
            if direction != "data" or op.input_gradient:
                yield convolution_case(kind, op, images)
    elif isinstance(op, Linear):
        m, n, k = images * op.tokens, op.outputs, op.inputs
        yield from products(m, n, k)
    elif isinstance(op, Elementwise) and op.name in kinds.PASSES:
        yield from _passes(job, plan, op)


def convolution_case(kind: str, op: Convolution, images: int) -> TimedCase:
    """A direction of a convolution over so many images."""
    sides = product_sides(op, DIRECTIONS[kind], images)
    shape = dict(zip("mnk", (float(np.asarray(side)) for side in sides), strict=True))
    sizes = (
        *(images, op.channels, op.outputs, op.groups),
        *(*op.window, *op.stride, *op.image_in, *op.image_out),
    )
    beside = dict(zip(kinds.CONVOLUTION_SIZES, map(float, sizes), strict=True))
    return TimedCase(kind, {**shape, **beside}, sizes)


def convolution_of(sizes: Mapping[str, float]) -> tuple[Convolution, int]:
    """The convolution that a case's sizes say, and over how many images."""
    whole = [int(sizes[name]) for name in kinds.CONVOLUTION_SIZES]
    images, channels, outputs, groups, *pairs = whole
    window, stride, image_in, image_out = zip(pairs[::2], pairs[1::2], strict=True)
    op = Convolution(
        name="conv",
        channels=channels,
        outputs=outputs,
        groups=groups,
        window=window,
        stride=stride,
        image_in=image_in,
        image_out=image_out,
    )
    return op, images


def _passes(job: Job, plan: Plan, op: Elementwise) -> Iterator[TimedCase]:
    """Forward and backward of what takes each value, or each window, for itself."""
    count, value = plan.microbatch_size * op.width, precision(plan.precision).activation
    names = ("forward", "backward")
    for name, reads, launches in zip(names, (op.forward, op.backward), op.launches, strict=True):
        if launches:
            moved = count * (reads * value + op.mask) * job.software.traffic
            channels = op.statistics or 1
            sizes = (plan.microbatch_size, op.width // channels, channels)
            yield TimedCase(f"{op.kind}_{name}", {"bytes": moved, "launches": launches}, sizes)
