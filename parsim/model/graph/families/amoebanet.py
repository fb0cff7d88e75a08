"""AmoebaNet-D of L normal cells and D filters, as torchgpipe has it: cells of two inputs.

    s1 (last cell), s2 (the one before) ── five sums of two operations each ── some joined

A cell hands its own result on, and the last one's, so two tensors cross every cut.

Source: kakaobrain/torchgpipe (commit a1b4ee2), benchmarks; Real et al. 2018 (arXiv:1802.01548).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from parsim.errors import ModelError
from parsim.model.graph.images import AvgPool2d, Crop, Pad
from parsim.model.graph.pointwise import Flatten, Relu
from parsim.model.graph.record import INPUT, Graph
from parsim.model.graph.sketch import Sketch, pair
from parsim.model.graph.texts import CrossEntropy

Step = tuple[int, str]
"""Which state an operation takes, and its name."""

NORMAL: tuple[Step, ...] = (
    *((1, "conv_1x1"), (1, "pool_3x3"), (1, "none"), (0, "conv_1x7_7x1"), (0, "conv_1x1")),
    *((0, "conv_1x7_7x1"), (2, "pool_3x3"), (2, "none"), (1, "pool_3x3"), (5, "conv_1x1")),
)
REDUCTION: tuple[Step, ...] = (
    *((0, "pool_2x2"), (0, "pool_3x3"), (2, "none"), (1, "conv_3x3"), (2, "conv_1x7_7x1")),
    *((2, "pool_3x3"), (3, "none"), (1, "pool_2x2"), (2, "pool_3x3"), (3, "conv_1x1")),
)
NORMAL_JOINED, REDUCTION_JOINED = (0, 3, 4, 6), (4, 5, 6)
"""States whose tensors are a cell's result."""


@dataclass(slots=True)
class Cells:
    """How far the network is drawn: both last results with their channels, and what comes."""

    draw: Sketch
    before: tuple[str, int]
    last: tuple[str, int]
    channels: int
    reduced: bool = False

    def add(self, prefix: str, *, reduction: bool) -> None:
        """One more cell."""
        draw, channels = self.draw, self.channels * (2 if reduction else 1)
        first = _relu_conv_bn(draw, self.last[0], f"{prefix}.reduce1", channels)
        second, width = self.before
        if self.reduced:
            second = _factorised(draw, second, f"{prefix}.reduce2", channels)
        elif width != channels:
            second = _relu_conv_bn(draw, second, f"{prefix}.reduce2", channels)
        states = [first, second]
        steps = REDUCTION if reduction else NORMAL
        for number in range(0, len(steps), 2):
            parts = []
            for offset in (0, 1):
                index, name = steps[number + offset]
                stride = 2 if reduction and index < 2 else 1
                here = f"{prefix}.{number + offset}"
                parts.append(OPERATIONS[name](draw, states[index], here, channels, stride))
            states.append(draw.add(f"{prefix}.sum{number // 2}", *parts))
        joined = [states[index] for index in (REDUCTION_JOINED if reduction else NORMAL_JOINED)]
        result = draw.end_layer(draw.concat(f"{prefix}.join", *joined))
        self.before, self.last = self.last, (result, channels * len(joined))
        self.channels, self.reduced = channels, reduction


def amoebanet_d(name: str, image_size: int, classes: int, *, first: int, second: int) -> Graph:
    """AmoebaNet-D of `first` normal cells, a multiple of 3, and `second` filters, of 4.

    Raises:
        ModelError: they are no such multiples.
    """
    if first % 3 or not first or second % 4:
        raise ModelError(f"{name}: {first} layers must be a multiple of 3, {second} filters of 4")
    draw = Sketch(name, (3, image_size, image_size))
    channels = second // 4
    stem = draw.node(Relu(in_place=False), "stem1.relu", INPUT)
    stem = draw.conv(stem, "stem1.conv", channels, 3, stride=2, padding=1)
    stem = draw.end_layer(draw.batch_norm(stem, "stem1.bn"))
    cells = Cells(draw, (stem, channels), (stem, channels), channels)
    cells.add("stem2", reduction=True)
    cells.add("stem3", reduction=True)
    for part in (1, 3, 5):
        for number in range(first // 3):
            cells.add(f"cell{part}.{number}", reduction=False)
        if part < 5:
            cells.add(f"cell{part + 1}", reduction=True)
    size = draw.graph().shapes[cells.last[0]][1]
    x = draw.avg_pool(cells.last[0], "classify.pool", size, size)
    x = draw.node(Flatten(), "classify.flat", x)
    draw.node(CrossEntropy(), "loss", draw.dense(x, "classify.fc", classes))
    return draw.graph()


def _relu_conv_bn(
    draw: Sketch,
    x: str,
    prefix: str,
    channels: int,
    kernel: int | tuple[int, int] = 1,
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0,
) -> str:
    x = draw.node(Relu(in_place=False), f"{prefix}.relu", x)
    x = draw.conv(x, f"{prefix}.conv", channels, kernel, stride=stride, padding=padding)
    return draw.batch_norm(x, f"{prefix}.bn")


def _factorised(draw: Sketch, x: str, prefix: str, channels: int) -> str:
    """Half of the rows and columns by two strided 1x1, one of them shifted by a pixel."""
    x = draw.node(Relu(in_place=False), f"{prefix}.relu", x)
    even = draw.conv(x, f"{prefix}.conv1", channels // 2, 1, stride=2)
    shifted = draw.node(
        Pad(rows=1, columns=1), f"{prefix}.pad", draw.node(Crop(), f"{prefix}.crop", x)
    )
    odd = draw.conv(shifted, f"{prefix}.conv2", channels // 2, 1, stride=2)
    return draw.batch_norm(draw.concat(f"{prefix}.join", even, odd), f"{prefix}.bn")


def _none(draw: Sketch, x: str, prefix: str, channels: int, stride: int) -> str:
    return x if stride == 1 else _factorised(draw, x, prefix, channels)


def _pool_3x3(draw: Sketch, x: str, prefix: str, channels: int, stride: int) -> str:
    operation = AvgPool2d(kernel_size=pair(3), stride=pair(stride), padding=pair(1))
    return draw.node(operation, prefix, x)


def _pool_2x2(draw: Sketch, x: str, prefix: str, channels: int, stride: int) -> str:
    return draw.max_pool(x, prefix, 2, stride)


def _conv_1x1(draw: Sketch, x: str, prefix: str, channels: int, stride: int) -> str:
    return _relu_conv_bn(draw, x, prefix, channels, 1, stride)


def _conv_3x3(draw: Sketch, x: str, prefix: str, channels: int, stride: int) -> str:
    x = _relu_conv_bn(draw, x, f"{prefix}.a", channels // 4)
    x = _relu_conv_bn(draw, x, f"{prefix}.b", channels // 4, 3, stride, 1)
    return _relu_conv_bn(draw, x, f"{prefix}.c", channels)


def _conv_7(draw: Sketch, x: str, prefix: str, channels: int, stride: int) -> str:
    narrow = channels // 4
    x = _relu_conv_bn(draw, x, f"{prefix}.a", narrow)
    x = _relu_conv_bn(draw, x, f"{prefix}.b", narrow, (1, 7), (1, stride), (0, 3))
    x = _relu_conv_bn(draw, x, f"{prefix}.c", narrow, (7, 1), (stride, 1), (3, 0))
    return _relu_conv_bn(draw, x, f"{prefix}.d", channels)


OPERATIONS: Mapping[str, Callable[[Sketch, str, str, int, int], str]] = {
    "none": _none,
    "pool_3x3": _pool_3x3,
    "pool_2x2": _pool_2x2,
    "conv_1x1": _conv_1x1,
    "conv_3x3": _conv_3x3,
    "conv_1x7_7x1": _conv_7,
}
"""torchgpipe's max pooling of 3x3 is an average as well."""
