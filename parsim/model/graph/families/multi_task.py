"""Several tasks on one image: a shared trunk, and a head with a loss of its own for each task.

    image ── trunk ──┬── convolutions ── mean ── classes of task 0 ── loss ──┬── mean
                     ├── convolutions ── mean ── classes of task 1 ── loss ──┤
                     └── ...                                                 ┘

Hard parameter sharing. Task t chooses among classes / 2^t.

Source: Caruana, Multitask Learning (Machine Learning 28, 1997); the convolutions are VGG's with
batch normalisation. Leaves out: weights of the losses, which count alike.
"""

from __future__ import annotations

from parsim.model.graph.images import AdaptiveAvgPool2d
from parsim.model.graph.joins import Flatten
from parsim.model.graph.record import INPUT, Graph
from parsim.model.graph.sketch import Sketch
from parsim.model.graph.texts import CrossEntropy, MeanLoss

TRUNK, HEAD = 2, 3
"""Blocks of the trunk, each of which halves the image, and convolutions of a head."""


def multi_task(name: str, image_size: int, classes: int, *, first: int, second: int) -> Graph:
    """A trunk and `first` heads; `second` channels in the trunk's first block."""
    draw, x = Sketch(name, (3, image_size, image_size)), INPUT
    for block in range(TRUNK):
        x = _conv(draw, x, f"trunk.{block}", second * 2**block)
        x = draw.max_pool(x, f"trunk.{block}.pool", 2, 2)
    losses = []
    for task in range(first):
        here = x
        for number in range(HEAD):
            here = _conv(draw, here, f"head{task}.{number}", second * 2**TRUNK)
        here = draw.node(AdaptiveAvgPool2d(), f"head{task}.mean", here)
        here = draw.node(Flatten(), f"head{task}.flatten", here)
        here = draw.dense(here, f"head{task}.classes", max(classes >> task, 2))
        losses.append(draw.node(CrossEntropy(), f"head{task}.loss", here))
    if first > 1:
        draw.node(MeanLoss(), "loss", *losses)
    return draw.graph()


def _conv(draw: Sketch, x: str, prefix: str, channels: int) -> str:
    x = draw.conv(x, f"{prefix}.conv", channels, 3, padding=1)
    return draw.relu(draw.batch_norm(x, f"{prefix}.norm"), f"{prefix}.relu")
