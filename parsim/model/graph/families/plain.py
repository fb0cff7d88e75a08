"""AlexNet and VGG, convolutions one after another, and several tasks on a trunk of such ones.

AlexNet of two towers was made for two devices, which exchange before the third convolution and
before each wide product:

    image ──┬── conv1a ── conv2a ──┬──── conv3a ── 4a ── 5a ──┬── fc6a ──┬── fc7a ──┬── fc8
            └── conv1b ── conv2b ──┴──── conv3b ── 4b ── 5b ──┴── fc6b ──┴── fc7b ──┘

Source: torchvision's definitions (`models/alexnet.py`, `models/vgg.py`); Krizhevsky 2014
(arXiv:1404.5997), ungrouped; Krizhevsky, Sutskever and Hinton 2012 (NIPS), the two towers; MXNet's
`symbols/alexnet.py` and tf_cnn_benchmarks' `alexnet_model.py`, one tower of other widths; Simonyan
and Zisserman 2014 (arXiv:1409.1556). Leaves out: local response normalisation, which those of 2012
and MXNet's have (1 % of a step by its bytes).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from parsim.model.graph.images import AdaptiveAvgPool2d
from parsim.model.graph.pointwise import Dropout, Flatten
from parsim.model.graph.record import INPUT, Graph
from parsim.model.graph.sketch import Sketch, pair
from parsim.model.graph.texts import CrossEntropy, MeanLoss

VGG16 = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0)
"""Channels of VGG-16's convolutions; 0 is a pooling."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tower:
    """AlexNet of one tower: channels of its five convolutions, and what differs around them.

    `padding` is that of the first convolution. `pooled` are the rows and columns that the products
    read, None for those that the last pooling leaves.
    """

    channels: tuple[int, int, int, int, int]
    padding: int = 2
    pooled: int | None = 6


ALEXNETS: Mapping[str, Tower] = {
    "alexnet": Tower(channels=(64, 192, 384, 256, 256)),
    "alexnet-2012": Tower(channels=(96, 256, 384, 384, 256), padding=0, pooled=None),
    "alexnet-tf": Tower(channels=(64, 192, 384, 384, 256)),
}
"""One tower as PyTorch has it; of the width of 2012, as MXNet has it; as TensorFlow has it."""


def alexnet(name: str, image_size: int = 224, classes: int = 1000) -> Graph:
    """One of `ALEXNETS` by its name."""
    tower, draw = ALEXNETS[name], Sketch(name, (3, image_size, image_size))
    first, second, *others = tower.channels
    x = _conv(draw, INPUT, 1, first, kernel=11, stride=4, padding=tower.padding)
    x = draw.max_pool(x, "pool1", 3, 2)
    x = _conv(draw, x, 2, second, kernel=5, padding=2)
    x = draw.max_pool(x, "pool2", 3, 2)
    for number, channels in enumerate(others, 3):
        x = _conv(draw, x, number, channels)
    x = draw.max_pool(x, "pool5", 3, 2)
    if tower.pooled is not None:
        x = draw.node(AdaptiveAvgPool2d(output_size=pair(tower.pooled)), "avgpool", x)
    x = draw.node(Flatten(), "flatten", x)
    for number in (6, 7):
        x = draw.node(Dropout(), f"drop{number}", x)
        x = draw.relu(draw.dense(x, f"fc{number}", 4096), f"relu{number}")
    draw.node(CrossEntropy(), "loss", draw.dense(x, "fc8", classes))
    return draw.graph()


def alexnet_towers(name: str, image_size: int = 224, classes: int = 1000) -> Graph:
    """AlexNet of two towers: 60,965,224 parameters."""
    draw = Sketch(name, (3, image_size, image_size))
    ends = []
    for tower in "ab":
        x = draw.relu(
            draw.conv(INPUT, f"conv1{tower}", 48, 11, stride=4, padding=2, bias=True),
            f"relu1{tower}",
        )
        x = draw.max_pool(x, f"pool1{tower}", 3, 2)
        x = draw.relu(draw.conv(x, f"conv2{tower}", 128, 5, padding=2, bias=True), f"relu2{tower}")
        ends.append(draw.max_pool(x, f"pool2{tower}", 3, 2))
    for tower, x in zip("ab", _crossed(draw, "cross3", ends), strict=True):
        for number, channels in ((3, 192), (4, 192), (5, 128)):
            x = draw.conv(x, f"conv{number}{tower}", channels, 3, padding=1, bias=True)
            x = draw.relu(x, f"relu{number}{tower}")
        x = draw.max_pool(x, f"pool5{tower}", 3, 2)
        x = draw.node(AdaptiveAvgPool2d(output_size=(6, 6)), f"avgpool{tower}", x)
        ends.append(draw.node(Flatten(), f"flatten{tower}", x))
    for layer in (6, 7):
        for tower, x in zip("ab", _crossed(draw, f"cross{layer}", ends[-2:]), strict=True):
            x = draw.node(Dropout(), f"drop{layer}{tower}", x)
            x = draw.dense(x, f"fc{layer}{tower}", 2048)
            ends.append(draw.relu(x, f"relu{layer}{tower}"))
    x = draw.concat("cross8", *ends[-2:])
    draw.node(CrossEntropy(), "loss", draw.dense(x, "fc8", classes))
    return draw.graph()


def _crossed(draw: Sketch, name: str, ends: list[str]) -> list[str]:
    """What both towers have, put together on either side."""
    return [draw.concat(f"{name}{tower}", *ends) for tower in "ab"]


def vgg16(name: str, image_size: int = 224, classes: int = 1000) -> Graph:
    """VGG-16 without batch normalisation: 138,357,544 parameters."""
    draw = Sketch(name, (3, image_size, image_size))
    x, number = INPUT, 0
    for channels in VGG16:
        if channels == 0:
            x = draw.max_pool(x, f"pool{number}", 2, 2)
            continue
        number += 1
        x = _conv(draw, x, number, channels)
    x = draw.node(AdaptiveAvgPool2d(output_size=(7, 7)), "avgpool", x)
    x = draw.node(Flatten(), "flatten", x)
    for number in (14, 15):
        x = draw.relu(draw.dense(x, f"fc{number}", 4096), f"relu{number}")
        x = draw.node(Dropout(), f"drop{number}", x)
    draw.node(CrossEntropy(), "loss", draw.dense(x, "fc16", classes))
    return draw.graph()


def _conv(
    draw: Sketch,
    x: str,
    number: int,
    channels: int,
    *,
    kernel: int = 3,
    stride: int = 1,
    padding: int = 1,
) -> str:
    """A convolution with a bias, and its ReLU."""
    x = draw.conv(x, f"conv{number}", channels, kernel, stride=stride, padding=padding, bias=True)
    return draw.relu(x, f"relu{number}")


TRUNK, HEAD = 2, 3
"""Blocks of the trunk, each of which halves the image, and convolutions of a head."""


def multi_task(name: str, image_size: int, classes: int, *, first: int, second: int) -> Graph:
    """A trunk and `first` heads; `second` channels in the trunk's first block.

        image ── trunk ──┬── convolutions ── mean ── classes of task 0 ── loss ──┬── mean
                         ├── convolutions ── mean ── classes of task 1 ── loss ──┤
                         └── ...                                                 ┘

    Hard parameter sharing. Task t chooses among classes / 2^t.

    Source: Caruana, Multitask Learning (Machine Learning 28, 1997); the convolutions are VGG's with
    batch normalisation. Leaves out: weights of the losses, which count alike.
    """
    draw, x = Sketch(name, (3, image_size, image_size)), INPUT
    for block in range(TRUNK):
        x = _task_conv(draw, x, f"trunk.{block}", second * 2**block)
        x = draw.max_pool(x, f"trunk.{block}.pool", 2, 2)
    losses = []
    for task in range(first):
        here = x
        for number in range(HEAD):
            here = _task_conv(draw, here, f"head{task}.{number}", second * 2**TRUNK)
        here = draw.node(AdaptiveAvgPool2d(), f"head{task}.mean", here)
        here = draw.node(Flatten(), f"head{task}.flatten", here)
        here = draw.dense(here, f"head{task}.classes", max(classes >> task, 2))
        losses.append(draw.node(CrossEntropy(), f"head{task}.loss", here))
    if first > 1:
        draw.node(MeanLoss(), "loss", *losses)
    return draw.graph()


def _task_conv(draw: Sketch, x: str, prefix: str, channels: int) -> str:
    x = draw.conv(x, f"{prefix}.conv", channels, 3, padding=1)
    return draw.relu(draw.batch_norm(x, f"{prefix}.norm"), f"{prefix}.relu")
