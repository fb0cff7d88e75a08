"""DenseNet: each layer reads all that the layers of its block before it made.

    x ──┬── norm ── relu ── 1x1 ── norm ── relu ── 3x3 ── join ──┬── ...
        └───────────────────────────────────────────┘            └

Blocks are joined by transitions, which halve channels (norm, relu, 1x1) and image (mean of 2x2).

Source: torchvision's definition (`models/densenet.py`), which puts all tensors so far together
again for each layer; Huang et al. 2016 (arXiv:1608.06993).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from parsim.model.graph.images import AdaptiveAvgPool2d
from parsim.model.graph.pointwise import Flatten
from parsim.model.graph.record import INPUT, Graph
from parsim.model.graph.sketch import Sketch
from parsim.model.graph.texts import CrossEntropy

BOTTLENECK = 4
"""Channels of a layer's 1x1, in those that the layer adds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dense:
    """Layers of the four blocks, the channels that enter the first, and that each layer adds."""

    blocks: tuple[int, int, int, int]
    channels: int = 64
    growth: int = 32


DENSENETS: Mapping[str, Dense] = {
    "densenet121": Dense(blocks=(6, 12, 24, 16)),
    "densenet161": Dense(blocks=(6, 12, 36, 24), channels=96, growth=48),
    "densenet169": Dense(blocks=(6, 12, 32, 32)),
    "densenet201": Dense(blocks=(6, 12, 48, 32)),
}


def densenet(name: str, image_size: int = 224, classes: int = 1000) -> Graph:
    """One of `DENSENETS` by its name."""
    sizes, draw = DENSENETS[name], Sketch(name, (3, image_size, image_size))
    x = draw.conv(INPUT, "conv0", sizes.channels, 7, stride=2, padding=3)
    x = draw.relu(draw.batch_norm(x, "norm0"), "relu0")
    x, channels = draw.end_layer(draw.max_pool(x, "pool0", 3, 2, 1)), sizes.channels
    for block, count in enumerate(sizes.blocks, 1):
        for layer in range(1, count + 1):
            x = draw.end_layer(_layer(draw, x, f"block{block}.{layer}", sizes.growth))
        channels += count * sizes.growth
        if block < len(sizes.blocks):
            channels //= 2
            x = draw.end_layer(_transition(draw, x, f"transition{block}", channels))
    x = draw.relu(draw.batch_norm(x, "norm5"), "relu5")
    x = draw.node(Flatten(), "flatten", draw.node(AdaptiveAvgPool2d(), "avgpool", x))
    draw.node(CrossEntropy(), "loss", draw.dense(x, "fc", classes))
    return draw.graph()


def _layer(draw: Sketch, x: str, prefix: str, growth: int) -> str:
    y = draw.relu(draw.batch_norm(x, f"{prefix}.norm1"), f"{prefix}.relu1")
    y = draw.conv(y, f"{prefix}.conv1", BOTTLENECK * growth, 1)
    y = draw.relu(draw.batch_norm(y, f"{prefix}.norm2"), f"{prefix}.relu2")
    y = draw.conv(y, f"{prefix}.conv2", growth, 3, padding=1)
    return draw.concat(f"{prefix}.join", x, y)


def _transition(draw: Sketch, x: str, prefix: str, channels: int) -> str:
    y = draw.relu(draw.batch_norm(x, f"{prefix}.norm"), f"{prefix}.relu")
    y = draw.conv(y, f"{prefix}.conv", channels, 1)
    return draw.avg_pool(y, f"{prefix}.pool", 2, 2)
