"""A made-up model of images: layers with branches, whose borders become narrower, and no ends."""

from __future__ import annotations

from itertools import pairwise

from parsim.model.layer import Branches, Layer, Part
from parsim.model.model import Model
from parsim.model.operators import Elementwise, Linear, Loss, Region, Split

PIXELS = (4096, 1024, 256, 64)
"""Rows of a sample in each of four layers: every layer halves both edges of an image."""

WIDTHS = (64, 128, 256, 512, 512)
"""Channels that enter each layer, and leave the last one."""

CLASSES = 1000


def product(name: str, pixels: int, inputs: int, outputs: int) -> Linear:
    """A convolution of one pixel's channels."""
    return Linear(
        name=name, tokens=pixels, inputs=inputs, outputs=outputs, split=Split.NONE, bias=False
    )


def pointwise(name: str, pixels: int, width: int, saved: float = 0.0) -> Elementwise:
    """Read and write once forward, read twice and write once backward."""
    return Elementwise(
        name=name,
        tokens=pixels,
        width=width,
        region=Region.SEQUENCE,
        forward=2,
        backward=3,
        saved=saved,
    )


def parts(pixels: int, inputs: int, outputs: int) -> tuple[Part, ...]:
    """A norm, then a bottleneck beside a plain product, then their sum.

    norm --+--> narrow --> relu --> wide --+--> sum
           +--> short ---------------------+
    """
    narrow = inputs // 4
    bottleneck = (
        product("narrow", pixels, inputs, narrow),
        pointwise("relu", pixels, narrow, saved=1),
        product("wide", pixels, narrow, outputs),
    )
    return (
        pointwise("in_norm", pixels, inputs, saved=1),
        Branches(paths=(bottleneck, (product("short", pixels, inputs, outputs),))),
        pointwise("sum", pixels, outputs),
    )


def branchy(copies: int = 2) -> Model:
    """Four sizes of layers, `copies` of each, and a layer that classifies."""
    layers: list[Layer] = []
    for pixels, (inputs, outputs) in zip(PIXELS, pairwise(WIDTHS), strict=True):
        whole = Layer(
            name=f"stage_{pixels}",
            parts=parts(pixels, inputs, inputs),
            inputs=pixels * inputs,
            outputs=pixels * inputs,
        )
        smaller = Layer(
            name=f"smaller_{pixels}",
            parts=parts(pixels, inputs, outputs),
            inputs=pixels * inputs,
            outputs=pixels * outputs // 4,
        )
        layers += [*[whole] * (copies - 1), smaller]
    classify = Layer(
        name="classify",
        parts=(product("classes", 1, 512, CLASSES), Loss(tokens=1, vocab_size=CLASSES)),
        inputs=16 * 512,
        outputs=1,
    )
    return Model(name="branchy", layers=(*layers, classify), tokens=1)
