"""Inception-v3 with its auxiliary classifier: blocks of four branches that are joined.

    x ──┬── 1x1 ──────────────┐
        ├── 1x1 ── 5x5 ───────┤
        ├── 1x1 ── 3x3 ── 3x3 ┼── join
        └── pool ── 1x1 ──────┘

Source: torchvision's definition (`models/inception.py`); Szegedy et al. 2015 (arXiv:1512.00567).
Leaves out: that the auxiliary loss is added at 0.4 of its value; here both classifiers' answers are
added up, which costs a loss of 1,000 values less and trains all the same parameters.
"""

from __future__ import annotations

from parsim.model.graph.images import AdaptiveAvgPool2d
from parsim.model.graph.pointwise import Dropout, Flatten
from parsim.model.graph.record import INPUT, Graph
from parsim.model.graph.sketch import Sketch, pair
from parsim.model.graph.texts import CrossEntropy
from parsim.model.networks import Pair

Step = tuple[int, int | Pair]
"""Channels and window of a convolution inside a branch, padded to keep the image."""

ROW, COLUMN = (1, 7), (7, 1)


def inception_v3(name: str, image_size: int = 299, classes: int = 1000) -> Graph:
    """Inception-v3: 27,161,264 parameters with the auxiliary classifier."""
    draw = Sketch(name, (3, image_size, image_size))
    x = _conv(draw, INPUT, "Conv2d_1a_3x3", 32, 3, stride=2)
    x = _conv(draw, x, "Conv2d_2a_3x3", 32, 3)
    x = _conv(draw, x, "Conv2d_2b_3x3", 64, 3, padding=1)
    x = draw.end_layer(draw.max_pool(x, "maxpool1", 3, 2))
    x = _conv(draw, x, "Conv2d_3b_1x1", 80, 1)
    x = _conv(draw, x, "Conv2d_4a_3x3", 192, 3)
    x = draw.end_layer(draw.max_pool(x, "maxpool2", 3, 2))
    for prefix, pooled in (("Mixed_5b", 32), ("Mixed_5c", 64), ("Mixed_5d", 64)):
        branches: list[list[Step]] = [[(64, 1)], [(48, 1), (64, 5)], [(64, 1), (96, 3), (96, 3)]]
        x = block(draw, x, prefix, branches, pooled)
    x = _reduced(draw, x, "Mixed_6a", [[(384, 3)], [(64, 1), (96, 3), (96, 3)]])
    for prefix, width in (
        *(("Mixed_6b", 128), ("Mixed_6c", 160), ("Mixed_6d", 160)),
        ("Mixed_6e", 192),
    ):
        seven: list[Step] = [(width, 1), (width, ROW), (192, COLUMN)]
        double: list[Step] = [
            (width, 1),
            (width, COLUMN),
            (width, ROW),
            (width, COLUMN),
            (192, ROW),
        ]
        x = block(draw, x, prefix, [[(192, 1)], seven, double], 192)
    auxiliary = _auxiliary(draw, x, classes)
    last: list[Step] = [(192, 1), (192, ROW), (192, COLUMN), (192, 3)]
    x = _reduced(draw, x, "Mixed_7a", [[(192, 1), (320, 3)], last])
    for prefix in ("Mixed_7b", "Mixed_7c"):
        x = forked_block(draw, x, prefix)
    x = draw.node(Dropout(), "dropout", draw.node(AdaptiveAvgPool2d(), "avgpool", x))
    answers = draw.dense(draw.node(Flatten(), "flatten", x), "fc", classes)
    draw.node(CrossEntropy(), "loss", draw.add("answers", answers, auxiliary))
    return draw.graph()


def _conv(
    draw: Sketch,
    x: str,
    prefix: str,
    channels: int,
    kernel: int | Pair,
    *,
    stride: int = 1,
    padding: int | Pair = 0,
) -> str:
    x = draw.conv(x, f"{prefix}.conv", channels, kernel, stride=stride, padding=padding)
    return draw.relu(draw.batch_norm(x, f"{prefix}.bn"), f"{prefix}.relu")


def _branch(draw: Sketch, x: str, prefix: str, steps: list[Step], *, reduces: bool = False) -> str:
    """Convolutions one after another; the last one of a reducing branch strides, unpadded."""
    for number, (channels, kernel) in enumerate(steps):
        rows, columns = pair(kernel)
        last = reduces and number == len(steps) - 1
        around = (0, 0) if last else (rows // 2, columns // 2)
        here = f"{prefix}.{number}"
        x = _conv(draw, x, here, channels, kernel, stride=1 + last, padding=around)
    return x


def block(draw: Sketch, x: str, prefix: str, branches: list[list[Step]], pooled: int) -> str:
    """Branches of convolutions, and a mean with a 1x1 behind it, that are joined."""
    parts = [_branch(draw, x, f"{prefix}.{i}", steps) for i, steps in enumerate(branches)]
    mean = draw.avg_pool(x, f"{prefix}.pool", 3, 1, 1)
    parts.append(_conv(draw, mean, f"{prefix}.pooled", pooled, 1))
    return draw.end_layer(draw.concat(f"{prefix}.join", *parts))


def _reduced(draw: Sketch, x: str, prefix: str, branches: list[list[Step]]) -> str:
    parts = [
        _branch(draw, x, f"{prefix}.{i}", steps, reduces=True) for i, steps in enumerate(branches)
    ]
    parts.append(draw.max_pool(x, f"{prefix}.pool", 3, 2))
    return draw.end_layer(draw.concat(f"{prefix}.join", *parts))


def forked_block(
    draw: Sketch,
    x: str,
    prefix: str,
    widths: tuple[int, int, int, int] = (320, 384, 448, 192),
) -> str:
    """A block whose 3x3 are each a 1x3 beside a 3x1."""
    first, width, narrow, pooled = widths
    parts = [_conv(draw, x, f"{prefix}.0", first, 1)]
    for number, steps in ((1, [(width, 1)]), (2, [(narrow, 1), (width, 3)])):
        stem = _branch(draw, x, f"{prefix}.{number}", list[Step](steps))
        wide = _conv(draw, stem, f"{prefix}.{number}.wide", width, (1, 3), padding=(0, 1))
        tall = _conv(draw, stem, f"{prefix}.{number}.tall", width, (3, 1), padding=(1, 0))
        parts.append(draw.concat(f"{prefix}.{number}.join", wide, tall))
    mean = draw.avg_pool(x, f"{prefix}.pool", 3, 1, 1)
    parts.append(_conv(draw, mean, f"{prefix}.pooled", pooled, 1))
    return draw.end_layer(draw.concat(f"{prefix}.join", *parts))


def _auxiliary(draw: Sketch, x: str, classes: int) -> str:
    x = draw.avg_pool(x, "aux.pool", 5, 3)
    x = _conv(draw, x, "aux.conv0", 128, 1)
    x = _conv(draw, x, "aux.conv1", 768, 5)
    x = draw.node(Flatten(), "aux.flatten", draw.node(AdaptiveAvgPool2d(), "aux.mean", x))
    return draw.dense(x, "aux.fc", classes)
