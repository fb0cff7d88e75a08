"""AlexNet, OverFeat and VGG, one convolution after another, and several tasks on such a trunk.

AlexNet of two towers was made for two devices, which exchange before the third convolution and
before each wide product:

    image ──┬── conv1a ── conv2a ──┬──── conv3a ── 4a ── 5a ──┬── fc6a ──┬── fc7a ──┬── fc8
            └── conv1b ── conv2b ──┴──── conv3b ── 4b ── 5b ──┴── fc6b ──┴── fc7b ──┘

Source: torchvision's definitions (`models/alexnet.py`, `models/vgg.py`); Krizhevsky 2014
(arXiv:1404.5997), ungrouped; Krizhevsky, Sutskever and Hinton 2012 (NIPS), the two towers, which
Caffe's `bvlc_alexnet` holds as convolutions in two groups; MXNet's `symbols/alexnet.py` and
tf_cnn_benchmarks' `alexnet_model.py`, one tower of other widths; Sermanet et al. 2013
(arXiv:1312.6229), OverFeat's fast model; Simonyan and Zisserman 2014 (arXiv:1409.1556), models A, D
and E. Leaves out: local response normalisation of the two towers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from parsim.model.graph.images import AdaptiveAvgPool2d, LocalResponseNorm
from parsim.model.graph.pointwise import Dropout, Flatten
from parsim.model.graph.record import INPUT, Graph
from parsim.model.graph.sketch import Sketch, pair
from parsim.model.graph.texts import CrossEntropy, MeanLoss

VGGS: Mapping[str, tuple[int, ...]] = {
    "vgg11": (1, 1, 2, 2, 2),
    "vgg13": (2, 2, 2, 2, 2),
    "vgg16": (2, 2, 3, 3, 3),
    "vgg19": (2, 2, 4, 4, 4),
}
"""Convolutions of each block, which a pooling ends: models A, B, D and E."""
VGG_CHANNELS = (64, 128, 256, 512, 512)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tower:
    """AlexNet of one tower, or a like: channels of five convolutions, and what differs around them.

    `paddings` are those of the first two convolutions, `groups` those of the second, fourth and
    fifth. Poolings of `window` rows halve the image; where `normalised` the first two read channels
    over what is around them. `pooled` are the rows and columns that the products read, None for
    those that the last pooling leaves; `widths` are those products'.
    """

    channels: tuple[int, int, int, int, int]
    paddings: tuple[int, int] = (2, 2)
    groups: int = 1
    normalised: bool = False
    window: int = 3
    pooled: int | None = 6
    widths: tuple[int, int] = (4096, 4096)
    image_size: int = 224


TOWERS: Mapping[str, Tower] = {
    "alexnet": Tower(channels=(64, 192, 384, 256, 256)),
    "alexnet-2012": Tower(
        channels=(96, 256, 384, 384, 256), paddings=(0, 2), normalised=True, pooled=None
    ),
    "alexnet-bvlc": Tower(channels=(96, 256, 384, 384, 256), groups=2, normalised=True),
    "alexnet-tf": Tower(channels=(64, 192, 384, 384, 256)),
    "overfeat-fast": Tower(
        channels=(96, 256, 512, 1024, 1024),
        paddings=(0, 0),
        window=2,
        pooled=None,
        widths=(3072, 4096),
        image_size=231,
    ),
}
"""One tower as PyTorch has it; of the width of 2012, as MXNet has it; in groups, as Caffe has it (a
first image of 55 rows, where windows on 224 without padding leave 54); as TensorFlow has it."""


def tower_network(name: str, image_size: int = 224, classes: int = 1000) -> Graph:
    """One of `TOWERS` by its name."""
    tower, draw = TOWERS[name], Sketch(name, (3, image_size, image_size))
    first, second, *others = tower.channels
    x = _conv(draw, INPUT, 1, first, kernel=11, stride=4, padding=tower.paddings[0])
    x = _pooled(draw, x, 1, tower)
    x = _conv(draw, x, 2, second, kernel=5, padding=tower.paddings[1], groups=tower.groups)
    x = _pooled(draw, x, 2, tower)
    for number, channels in enumerate(others, 3):
        x = _conv(draw, x, number, channels, groups=1 if number == 3 else tower.groups)
    x = draw.max_pool(x, "pool5", tower.window, 2)
    if tower.pooled is not None:
        x = draw.node(AdaptiveAvgPool2d(output_size=pair(tower.pooled)), "avgpool", x)
    x = draw.node(Flatten(), "flatten", x)
    for number, width in enumerate(tower.widths, 6):
        x = draw.node(Dropout(), f"drop{number}", x)
        x = draw.relu(draw.dense(x, f"fc{number}", width), f"relu{number}")
    draw.node(CrossEntropy(), "loss", draw.dense(x, "fc8", classes))
    return draw.graph()


def _pooled(draw: Sketch, x: str, number: int, tower: Tower) -> str:
    if tower.normalised:
        x = draw.node(LocalResponseNorm(), f"norm{number}", x)
    return draw.max_pool(x, f"pool{number}", tower.window, 2)


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


def vgg(name: str, image_size: int = 224, classes: int = 1000) -> Graph:
    """One of `VGGS` by its name, without batch normalisation; VGG-16: 138,357,544 parameters."""
    draw = Sketch(name, (3, image_size, image_size))
    x, number = INPUT, 0
    for count, channels in zip(VGGS[name], VGG_CHANNELS, strict=True):
        for _ in range(count):
            number += 1
            x = _conv(draw, x, number, channels)
        x = draw.max_pool(x, f"pool{number}", 2, 2)
    x = draw.node(AdaptiveAvgPool2d(output_size=(7, 7)), "avgpool", x)
    x = draw.node(Flatten(), "flatten", x)
    for behind in (number + 1, number + 2):
        x = draw.relu(draw.dense(x, f"fc{behind}", 4096), f"relu{behind}")
        x = draw.node(Dropout(), f"drop{behind}", x)
    draw.node(CrossEntropy(), "loss", draw.dense(x, f"fc{number + 3}", classes))
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
    groups: int = 1,
) -> str:
    """A convolution with a bias, and its ReLU."""
    sizes = {"stride": stride, "padding": padding, "groups": groups}
    x = draw.conv(x, f"conv{number}", channels, kernel, **sizes, bias=True)
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
