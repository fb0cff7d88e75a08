"""Transformers that are no decoders of text alone: vision transformers, encoders with decoders.

Source: torchvision's `models/vision_transformer.py` and Dosovitskiy et al. 2020 (arXiv:2010.11929);
Vaswani et al. 2017 (arXiv:1706.03762).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from parsim.model.graph.record import INPUT, Graph
from parsim.model.graph.sequences import SelfAttention
from parsim.model.graph.sketch import Sketch
from parsim.model.graph.texts import CrossEntropy, FirstRow, Gelu, LayerNorm, Patches


@dataclass(frozen=True, slots=True, kw_only=True)
class Vision:
    """Sizes of a vision transformer."""

    patch: int
    layers: int
    width: int
    heads: int
    inner: int


VISIONS: Mapping[str, Vision] = {
    "vit-b-16": Vision(patch=16, layers=12, width=768, heads=12, inner=3072),
    "vit-l-16": Vision(patch=16, layers=24, width=1024, heads=16, inner=4096),
    "vit-h-14": Vision(patch=14, layers=32, width=1280, heads=16, inner=5120),
}


def vision(name: str, image_size: int = 224, classes: int = 1000) -> Graph:
    """One of `VISIONS` by its name; a layer is a block."""
    sizes = VISIONS[name]
    draw = Sketch(name, (3, image_size, image_size))
    x = draw.conv(INPUT, "conv_proj", sizes.width, sizes.patch, stride=sizes.patch, bias=True)
    x = draw.end_layer(draw.node(Patches(), "patches", x))
    for number in range(sizes.layers):
        prefix = f"layers.{number}"
        y = draw.node(LayerNorm(), f"{prefix}.ln_1", x)
        y = draw.dense(y, f"{prefix}.in_proj", 3 * sizes.width)
        y = draw.node(SelfAttention(heads=sizes.heads), f"{prefix}.attention", y)
        y = draw.dense(y, f"{prefix}.out_proj", sizes.width)
        x = draw.add(f"{prefix}.attended", y, x)
        y = draw.node(LayerNorm(), f"{prefix}.ln_2", x)
        y = draw.node(Gelu(), f"{prefix}.gelu", draw.dense(y, f"{prefix}.fc1", sizes.inner))
        y = draw.dense(y, f"{prefix}.fc2", sizes.width)
        x = draw.end_layer(draw.add(f"{prefix}.out", y, x))
    x = draw.node(FirstRow(), "first", draw.node(LayerNorm(), "ln", x))
    draw.node(CrossEntropy(), "loss", draw.dense(x, "head", classes))
    return draw.graph()
