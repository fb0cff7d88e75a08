"""Residual networks: ResNet, ResNeXt, and both with squeeze-and-excitation.

    x ──┬── 1x1 ── 3x3 ── 1x1 ──(scale)── + ── relu
        └──────── (1x1, where shapes change) ┘

"v2" normalises ahead of each convolution, and nothing behind the sum:

    x ──┬── relu ── 1x1 ── 3x3 ── 1x1 ── +
        └────────────────────────────────┘

Source: torchvision's definitions (`models/resnet.py`), with the stride in the 3x3 ("v1.5"); "v1"
has it in the first 1x1, as He et al. 2015 (arXiv:1512.03385) and tf_cnn_benchmarks; Xie et al. 2016
(arXiv:1611.05431), Hu et al. 2017 (arXiv:1709.01507); He et al. 2016 (arXiv:1603.05027), "v2",
whose short cuts are without normalisation where shapes change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from parsim.model.graph.images import AdaptiveAvgPool2d
from parsim.model.graph.pointwise import Flatten, Relu, Scale, Sigmoid
from parsim.model.graph.record import INPUT, Graph
from parsim.model.graph.sketch import Sketch
from parsim.model.graph.texts import CrossEntropy


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """Blocks of the four parts, and what a block is made of.

    A `basic` block has two 3x3. A bottleneck's 3x3 has `groups` of `group_width` channels for each
    64 of the part. `squeeze` is the divisor of squeeze-and-excitation's width, 0 for none.
    `early_stride` has the first 1x1 of a bottleneck stride, not its 3x3. `ahead` is normalised
    ahead of each convolution of a bottleneck.
    """

    blocks: tuple[int, int, int, int]
    basic: bool = False
    groups: int = 1
    group_width: int = 64
    squeeze: int = 0
    early_stride: bool = False
    ahead: bool = False


RESIDUALS: Mapping[str, Residual] = {
    "resnet18": Residual(blocks=(2, 2, 2, 2), basic=True),
    "resnet34": Residual(blocks=(3, 4, 6, 3), basic=True),
    "resnet50": Residual(blocks=(3, 4, 6, 3)),
    "resnet101": Residual(blocks=(3, 4, 23, 3)),
    "resnet152": Residual(blocks=(3, 8, 36, 3)),
    "resnet50-v1": Residual(blocks=(3, 4, 6, 3), early_stride=True),
    "resnet101-v1": Residual(blocks=(3, 4, 23, 3), early_stride=True),
    "resnet152-v1": Residual(blocks=(3, 8, 36, 3), early_stride=True),
    "resnet200-v2": Residual(blocks=(3, 24, 36, 3), ahead=True),
    "resnext50-32x4d": Residual(blocks=(3, 4, 6, 3), groups=32, group_width=4),
    "resnext101-32x4d": Residual(blocks=(3, 4, 23, 3), groups=32, group_width=4),
    "se-resnext101-32x4d": Residual(blocks=(3, 4, 23, 3), groups=32, group_width=4, squeeze=16),
}


def residual(name: str, image_size: int = 224, classes: int = 1000) -> Graph:
    """One of `RESIDUALS` by its name."""
    sizes = RESIDUALS[name]
    draw = Sketch(name, (3, image_size, image_size))
    x = draw.conv(INPUT, "conv1", 64, 7, stride=2, padding=3)
    x = draw.relu(draw.batch_norm(x, "bn1"), "relu")
    x = draw.end_layer(draw.max_pool(x, "maxpool", 3, 2, 1))
    channels = 64
    for part, count in enumerate(sizes.blocks):
        for block in range(count):
            stride = 2 if part and not block else 1
            prefix = f"layer{part + 1}.{block}"
            out = 64 * 2**part * (1 if sizes.basic else 4)
            build = _block_ahead if sizes.ahead else _block
            x = build(draw, x, prefix, sizes, part, stride, changes=stride > 1 or out != channels)
            channels = out
            draw.end_layer(x)
    if sizes.ahead:
        x = draw.relu(draw.batch_norm(x, "bn5"), "relu5")
    x = draw.node(Flatten(), "flatten", draw.node(AdaptiveAvgPool2d(), "avgpool", x))
    draw.node(CrossEntropy(), "loss", draw.dense(x, "fc", classes))
    return draw.graph()


def _block(
    draw: Sketch, x: str, prefix: str, sizes: Residual, part: int, stride: int, *, changes: bool
) -> str:
    """A block around its short cut."""
    y = (_basic if sizes.basic else _bottleneck)(draw, x, prefix, sizes, part, stride)
    if sizes.squeeze:
        y = _squeezed(draw, y, prefix, 256 * 2**part, sizes.squeeze)
    if changes:
        out = 64 * 2**part * (1 if sizes.basic else 4)
        x = draw.conv(x, f"{prefix}.downsample.0", out, 1, stride=stride)
        x = draw.batch_norm(x, f"{prefix}.downsample.1")
    return draw.relu(draw.add(f"{prefix}.add", y, x), f"{prefix}.relu")


def _block_ahead(
    draw: Sketch, x: str, prefix: str, sizes: Residual, part: int, stride: int, *, changes: bool
) -> str:
    """A bottleneck of normalised inputs; where shapes change its short cut starts behind the first.

    The network's first block has its input normalised by what is before it.
    """
    width, first = sizes.group_width * 2**part * sizes.groups, prefix == "layer1.0"
    y = x if first else draw.relu(draw.batch_norm(x, f"{prefix}.bn1"), f"{prefix}.relu1")
    if changes:
        x = draw.conv(y, f"{prefix}.downsample", 256 * 2**part, 1, stride=stride)
    y = _normalised(draw, y, prefix, 1, width, 1, norm=2)
    y = draw.relu(y, f"{prefix}.relu2")
    y = _normalised(draw, y, prefix, 2, width, 3, norm=3, stride=stride, padding=1)
    y = draw.relu(y, f"{prefix}.relu3")
    return draw.add(f"{prefix}.add", draw.conv(y, f"{prefix}.conv3", 256 * 2**part, 1), x)


def _basic(draw: Sketch, x: str, prefix: str, sizes: Residual, part: int, stride: int) -> str:
    out = 64 * 2**part
    y = _normalised(draw, x, prefix, 1, out, 3, stride=stride, padding=1)
    y = draw.conv(draw.relu(y, f"{prefix}.relu1"), f"{prefix}.conv2", out, 3, padding=1)
    return draw.batch_norm(y, f"{prefix}.bn2")


def _bottleneck(draw: Sketch, x: str, prefix: str, sizes: Residual, part: int, stride: int) -> str:
    width = sizes.group_width * 2**part * sizes.groups
    early, late = (stride, 1) if sizes.early_stride else (1, stride)
    y = _normalised(draw, x, prefix, 1, width, 1, stride=early)
    y = draw.relu(y, f"{prefix}.relu1")
    y = _normalised(draw, y, prefix, 2, width, 3, stride=late, padding=1, groups=sizes.groups)
    y = draw.relu(y, f"{prefix}.relu2")
    return _normalised(draw, y, prefix, 3, 256 * 2**part, 1)


def _normalised(  # noqa: PLR0913 - the sizes of a window
    draw: Sketch,
    x: str,
    prefix: str,
    number: int,
    channels: int,
    kernel: int,
    *,
    stride: int = 1,
    padding: int = 0,
    groups: int = 1,
    norm: int = 0,
) -> str:
    name = f"{prefix}.conv{number}"
    x = draw.conv(x, name, channels, kernel, stride=stride, padding=padding, groups=groups)
    return draw.batch_norm(x, f"{prefix}.bn{norm or number}")


def _squeezed(draw: Sketch, x: str, prefix: str, channels: int, divisor: int) -> str:
    """Each channel times what two products make of all channels' means."""
    y = draw.node(AdaptiveAvgPool2d(), f"{prefix}.squeeze", x)
    y = draw.conv(y, f"{prefix}.se1", channels // divisor, 1, bias=True)
    y = draw.node(Relu(), f"{prefix}.se_relu", y)
    y = draw.conv(y, f"{prefix}.se2", channels, 1, bias=True)
    return draw.node(Scale(), f"{prefix}.scale", x, draw.node(Sigmoid(), f"{prefix}.gate", y))
