"""Small models with branches for tests: heads, towers, modules of Inception, cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from parsim.model.graph.catalog import network
from parsim.model.graph.families.inception import block, forked_block
from parsim.model.graph.images import AdaptiveAvgPool2d
from parsim.model.graph.pointwise import Flatten
from parsim.model.graph.record import INPUT, Graph
from parsim.model.graph.sketch import Sketch
from parsim.model.graph.texts import CrossEntropy


def modules(size: int = 9, classes: int = 5) -> Graph:
    """Three modules of Inception, the last with forks inside its branches, on small images."""
    draw = Sketch("modules", (3, size, size))
    x = draw.relu(draw.conv(INPUT, "stem.conv", 8, 3, padding=1), "stem.relu")
    for prefix in ("first", "second"):
        x = block(draw, x, prefix, [[(6, 1)], [(4, 1), (6, 5)], [(4, 1), (6, 3), (6, 3)]], 4)
    x = forked_block(draw, x, "third", widths=(8, 6, 6, 6))
    x = draw.node(Flatten(), "flatten", draw.node(AdaptiveAvgPool2d(), "mean", x))
    draw.node(CrossEntropy(), "loss", draw.dense(x, "fc", classes))
    return draw.graph()


def towers(size: int = 8, classes: int = 4) -> Graph:
    """Two towers that read the image, exchange once, and are joined: the first AlexNet's, small."""
    draw = Sketch("towers", (3, size, size))
    ends = [draw.conv(INPUT, f"conv1{tower}", 4, 3, padding=1, bias=True) for tower in "ab"]
    crossed = [draw.concat(f"cross2{tower}", *ends) for tower in "ab"]
    ends = [
        draw.relu(draw.conv(x, f"conv2{tower}", 6, 3, padding=1, bias=True), f"relu2{tower}")
        for tower, x in zip("ab", crossed, strict=True)
    ]
    x = draw.node(Flatten(), "flatten", draw.concat("join", *ends))
    draw.node(CrossEntropy(), "loss", draw.dense(x, "fc", classes))
    return draw.graph()


MODELS: Mapping[str, Callable[[], Graph]] = {
    "tasks": partial(network, "multi-task-3-4", 16, 8),
    "towers": towers,
    "modules": modules,
    "cells": partial(network, "amoebanet-d-3-8", 64, 6),
    "inception-v3": partial(network, "inception-v3", 299, 6),
    "chain": partial(network, "vgg16", 32, 4),
}
