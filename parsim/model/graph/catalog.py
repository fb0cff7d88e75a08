"""Networks that parsim knows by name, and what their names say.

resnet50                  a network of one size
u-net-5-64                torchgpipe's U-Net of 5 blocks a stage and 64 channels
amoebanet-d-18-256        its AmoebaNet-D of 18 layers and 256 filters
multi-task-3-64           a shared trunk of 64 channels with the heads of 3 tasks
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache, partial

from parsim.errors import ModelError
from parsim.model.graph.families.amoebanet import amoebanet_d
from parsim.model.graph.families.densenet import DENSENETS, densenet
from parsim.model.graph.families.googlenet import googlenet
from parsim.model.graph.families.inception import inception_v3
from parsim.model.graph.families.plain import (
    TOWERS,
    VGGS,
    alexnet_towers,
    multi_task,
    tower_network,
    vgg,
)
from parsim.model.graph.families.residual import RESIDUALS, residual
from parsim.model.graph.families.transformer import VISIONS, vision
from parsim.model.graph.families.translation import (
    GNMT_LAYERS,
    GNMT_TOKENS,
    TRANSLATORS,
    gnmt,
    translator,
)
from parsim.model.graph.families.unet import unet
from parsim.model.graph.record import Graph

Builder = Callable[[str, int, int], Graph]
"""From a name, rows of the image and classes to the graph."""

NETWORKS: Mapping[str, tuple[Builder, int]] = {
    **{name: (tower_network, tower.image_size) for name, tower in TOWERS.items()},
    "alexnet-two-towers": (alexnet_towers, 224),
    **dict.fromkeys(VGGS, (vgg, 224)),
    **dict.fromkeys(RESIDUALS, (residual, 224)),
    **dict.fromkeys(DENSENETS, (densenet, 224)),
    "googlenet": (googlenet, 224),
    "inception-v3": (inception_v3, 299),
    **dict.fromkeys(VISIONS, (vision, 224)),
    **dict.fromkeys(GNMT_LAYERS, (gnmt, GNMT_TOKENS)),
    **dict.fromkeys(TRANSLATORS, (translator, 128)),
}
"""Builders of networks of one size, and the image they were made for."""

SIZED: Mapping[str, tuple[Callable[..., Graph], int]] = {
    "u-net": (unet, 192),
    "u-net-b-c": (unet, 192),
    "amoebanet-d": (amoebanet_d, 224),
    "multi-task": (multi_task, 224),
}
"""Builders of networks whose name ends with two sizes."""

SIZED_NAMES: Mapping[str, str] = {
    "u-net-5-64": "torchgpipe's U-Net of 5 blocks a stage and 64 channels",
    "amoebanet-d-18-256": "its AmoebaNet-D of 18 layers and 256 filters",
    "multi-task-3-64": "a trunk of 64 channels with the heads of 3 tasks",
}
"""Examples of such names, and what they say."""

CLASSES = 1000
"""Classes of ImageNet."""


def is_network(name: str) -> bool:
    """Whether a name is that of a network."""
    return _builder(name.lower()) is not None


def reads_text(name: str) -> bool:
    """Whether a network reads tokens; its builder takes their number in place of rows."""
    return name.lower() in (*GNMT_LAYERS, *TRANSLATORS)


@cache
def network(name: str, image_size: int | None = None, classes: int | None = None) -> Graph:
    """The graph of a network, for its usual image and classes unless told others.

    Raises:
        ModelError: an image too small for the network's windows.
        KeyError: no such network.
    """
    built = _builder(name.lower())
    if built is None:
        raise KeyError(name)
    builder, usual = built
    size = image_size or usual
    count = classes or (0 if reads_text(name) else CLASSES)
    try:
        return builder(name.lower(), size, count)
    except ModelError as reason:
        raise ModelError(f"{name} with image_size={size}: {reason}") from None


def _builder(name: str) -> tuple[Builder, int] | None:
    if name in NETWORKS:
        return NETWORKS[name]
    match = re.fullmatch(r"(.+?)-(\d{1,4})-(\d{1,5})", name)
    if match is None or match[1] not in SIZED:
        return None
    builder, usual = SIZED[match[1]]
    return partial(builder, first=int(match[2]), second=int(match[3])), usual
