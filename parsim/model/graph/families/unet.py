"""torchgpipe's simplified U-Net of B convolutions a cell and C channels: long skip connections.

    encoder 0 ──────────────── decoder 0 ── segment
      encoder 1 ──────────── decoder 1
        ...        bottleneck

Each convolution is conv, Dropout2d, InstanceNorm2d without weights, LeakyReLU. What skips is needed
behind every cut between its ends, and crosses there.

Source: kakaobrain/torchgpipe (commit a1b4ee2), benchmarks; Ronneberger et al. 2015
(arXiv:1505.04597).
"""

from __future__ import annotations

from parsim.model.graph.images import InstanceNorm2d, Pad, Upsample
from parsim.model.graph.pointwise import Dropout, Relu
from parsim.model.graph.record import INPUT, Graph
from parsim.model.graph.sketch import Sketch

DEPTH = 5


def unet(name: str, image_size: int, classes: int, *, first: int, second: int) -> Graph:
    """U-Net of `first` convolutions a cell and `second` channels; a layer is one convolution.

    The loss is of one value a pixel, so `classes` has no say.
    """
    draw = Sketch(name, (3, image_size, image_size))
    x, skips = INPUT, []
    rows = image_size
    for level in range(DEPTH):
        width = second * 2**level
        x = _cell(draw, x, f"encoder.{level}", width, width, first)
        skips.append((x, rows))
        x = draw.end_layer(draw.max_pool(x, f"encoder.{level}.down", 2, 2))
        rows //= 2
    wide = second * 2**DEPTH
    x = _cell(draw, x, "bottleneck", wide, wide // 2, first)
    for level in reversed(range(DEPTH)):
        prefix, width = f"decoder.{level}", int(second * 2.0 ** (level - 1))
        x = draw.node(Upsample(factor=2), f"{prefix}.up", x)
        skip, wanted = skips[level]
        if wanted != 2 * rows:
            missing = wanted - 2 * rows
            x = draw.node(Pad(rows=missing, columns=missing), f"{prefix}.pad", x)
        rows = wanted
        x = draw.end_layer(draw.concat(f"{prefix}.join", x, skip))
        x = _cell(draw, x, prefix, width, width, first)
    draw.conv(x, "segment", 1, 1)
    return draw.graph()


def _cell(draw: Sketch, x: str, prefix: str, inner: int, outer: int, convolutions: int) -> str:
    for number in range(convolutions):
        here = f"{prefix}.{number}"
        width = outer if number == convolutions - 1 else inner
        x = draw.conv(x, f"{here}.conv", width, 3, padding=1)
        x = draw.node(Dropout(p=0.1, channels=True), f"{here}.dropout", x)
        x = draw.node(InstanceNorm2d(), f"{here}.norm", x)
        x = draw.end_layer(draw.node(Relu(in_place=False, slope=0.01), f"{here}.relu", x))
    return x
