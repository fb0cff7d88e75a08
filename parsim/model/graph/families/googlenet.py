"""GoogLeNet, or Inception-v1, without its auxiliary classifiers: blocks of four branches.

    x ──┬── 1x1 ─────────┐
        ├── 1x1 ── 3x3 ──┤
        ├── 1x1 ── 5x5 ──┼── join
        └── pool ── 1x1 ─┘

Source: Szegedy et al. 2014 (arXiv:1409.4842), table 1; Caffe's `bvlc_googlenet` and
soumith/convnet-benchmarks (commit b458aab, torch7/imagenet_winners/googlenet.lua) have the same
sizes. Leaves out: local response normalisation, and two classifiers that only help training, as
both benchmarks do.
"""

from __future__ import annotations

from parsim.model.graph.images import AdaptiveAvgPool2d
from parsim.model.graph.pointwise import Dropout, Flatten
from parsim.model.graph.record import INPUT, Graph
from parsim.model.graph.sketch import Sketch
from parsim.model.graph.texts import CrossEntropy

BLOCKS = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}
"""Channels of 1x1; of 3x3 and of the 1x1 before it; of 5x5 likewise; behind the pooling."""
HALVED = ("3b", "4e")
"""Blocks that a pooling of half the rows follows."""


def googlenet(name: str, image_size: int = 224, classes: int = 1000) -> Graph:
    """GoogLeNet: 6,998,552 parameters."""
    draw = Sketch(name, (3, image_size, image_size))
    x = _conv(draw, INPUT, "conv1", 64, 7, stride=2)
    x = draw.end_layer(draw.max_pool(x, "pool1", 3, 2, 1))
    x = _conv(draw, _conv(draw, x, "conv2.reduce", 64, 1), "conv2", 192, 3)
    x = draw.end_layer(draw.max_pool(x, "pool2", 3, 2, 1))
    for block, widths in BLOCKS.items():
        x = _block(draw, x, block, widths)
        if block in HALVED:
            x = draw.max_pool(x, f"{block}.halved", 3, 2, 1)
        draw.end_layer(x)
    x = draw.node(Dropout(), "dropout", draw.node(AdaptiveAvgPool2d(), "avgpool", x))
    x = draw.dense(draw.node(Flatten(), "flatten", x), "fc", classes)
    draw.node(CrossEntropy(), "loss", x)
    return draw.graph()


def _block(draw: Sketch, x: str, prefix: str, widths: tuple[int, ...]) -> str:
    single, before_three, three, before_five, five, pooled = widths
    parts = [_conv(draw, x, f"{prefix}.1x1", single, 1)]
    for kernel, before, width in ((3, before_three, three), (5, before_five, five)):
        reduced = _conv(draw, x, f"{prefix}.{kernel}x{kernel}.reduce", before, 1)
        parts.append(_conv(draw, reduced, f"{prefix}.{kernel}x{kernel}", width, kernel))
    largest = draw.max_pool(x, f"{prefix}.pool", 3, 1, 1)
    parts.append(_conv(draw, largest, f"{prefix}.pooled", pooled, 1))
    return draw.concat(f"{prefix}.join", *parts)


def _conv(draw: Sketch, x: str, prefix: str, channels: int, kernel: int, *, stride: int = 1) -> str:
    """A convolution with a bias that keeps the image, or halves it, and its ReLU."""
    around = kernel // 2
    x = draw.conv(x, prefix, channels, kernel, stride=stride, padding=around, bias=True)
    return draw.relu(x, f"{prefix}.relu")
