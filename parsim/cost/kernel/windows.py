"""Seconds of an fp32 convolution of a square window that steps by one, by the fastest way there is.

    plain      2 N K P Q C R S products, implicitly of matrices                   any release
    Fourier    tiles of 16 or 32 rows, multiplied frequency by frequency         cuDNN 4
    Winograd   tiles of 4 rows of 3x3 inside one kernel: forward and data        cuDNN 5
    staged     tiles of 6 rows of 3x3 and 5x5, transforms as kernels of their own   cuDNN 5.1

Tiles of T rows give T - R + 1 rows of the output. Each value of a transformed tile takes a product
for each pair of channels, whatever the window, and is written and read beside the products where
these are kernels of their own; a transformed window is so in any case. So few images, few tiles and
few channels gain little, and a library that times all ways takes another for each size. A way whose
tiles do not fit into what a framework lets a convolution have is none.

Source: Lavin and Gray 2015 (arXiv:1509.09308), tiles of Winograd; Mathieu, Henaff and LeCun 2013
(arXiv:1312.5851), of Fourier; release notes of cuDNN 4, 5 and 5.1, which library has what. The
constants below are fitted to 825 times of 3x3 and 5x5 on eight devices, with 4 to 32 images
(DeepBench, baidu-research, commit da81ba7), and 15 of 3x3 to 11x11 with 128 images on Titan X
(soumith/convnet-benchmarks, commit b458aab), with one share of the peak for each device: mean |log|
error 0.19 and 0.33; 0.27 of the former by two classes of six shares for each device.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

import numpy as np

from parsim.arrays import Array
from parsim.cluster.hardware import Device
from parsim.model.networks import THREE, Convolution, Direction

FILL = 15e-6
"""Seconds of a kernel's unfilled first and last waves."""
VOLTA = 7.3
"""The first release whose fp32 kernels for Volta are as fast as those of 7.6, to 2 %."""
HALF_DEPTH = 12.0
"""Depth of plain products, or for a weight their channels, with which they run at half of their
rate."""
HALF_CHANNELS = {"forward": 12.0, "data": 12.0, "weight": 64.0}
"""Channels, of input or output, with which products of transformed tiles do."""
HALF_TILES = 64.0
"""Tiles of all images with which real products do that are not a weight's, whose depth they are."""
HALF_COMPLEX = 8.0
"""Tiles with which complex products do: each of their values takes part in twice the arithmetic
for its bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transform:
    """A way by transformed tiles.

    `rows` of a tile, windows that it is `made_for` (none: any that fits), real products of a tile
    for each pair of channels, values that it is kept as, the share of the plain rate of products
    that these reach, whether transforms are kernels of their own, and since which release each
    direction has it.
    """

    rows: int
    products: int
    values: int
    pace: float
    staged: bool
    made_for: tuple[int, ...] = ()
    half_tiles: float = HALF_TILES
    forward: float = inf
    data: float = inf
    weight: float = inf

    def since(self, direction: Direction) -> float:
        """The release of cuDNN from which on a direction has it."""
        return {"forward": self.forward, "data": self.data, "weight": self.weight}[direction]


def _fourier(rows: int) -> Transform:
    """Tiles of half as many complex frequencies, of four real products each."""
    half = rows * (rows // 2 + 1)
    return Transform(
        rows=rows,
        products=4 * half,
        values=2 * half,
        pace=0.6,
        staged=True,
        half_tiles=HALF_COMPLEX,
        forward=4.0,
        data=4.0,
        weight=4.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """Which ways a stack has: a release of cuDNN, and bytes that one may take beside tensors."""

    cudnn: float = 9.0
    workspace: float = inf

    @property
    def early(self) -> bool:
        """Whether kernels for Volta are not what they became: DeepBench has them of 7.0 and 7.3."""
        return self.cudnn < VOLTA


PLAIN_PACE = 0.45
"""Share of the rate of transformed products that plain ones reach."""
WAYS = (
    Transform(
        rows=4,
        products=16,
        values=16,
        pace=0.6,
        staged=False,
        made_for=(THREE,),
        forward=5.0,
        data=5.0,
    ),
    Transform(
        rows=6,
        products=36,
        values=36,
        pace=1.0,
        staged=True,
        made_for=(THREE, 5),
        forward=5.1,
        data=5.1,
        weight=5.1,
    ),
    _fourier(16),
    _fourier(32),
)


def window_time(
    device: Device, op: Convolution, direction: Direction, images: Array, value: float, have: Ways
) -> Array:
    """Time of one direction, the least of all ways that the stack has.

        plain        15 us + work / (e pace P) + bytes / (hb H)
        transformed  as plain, 30 us where staged, with the transforms' bytes

    Each way's rate is halved by few channels and few tiles. Groups are convolutions one after
    another, with a wait each.

    Args:
        device: gives the peak, the bandwidth and the share e, `convolution.window`.
        op: the sizes.
        direction: which of the three.
        images: of one micro-batch.
        value: bytes of one value.
        have: which ways.
    """
    bandwidth = device.memory_bandwidth * device.gemm_memory_efficiency
    rate = device.peak("fp32") * device.convolution_share("window")
    rate = rate * (device.convolution_share("early_window") if have.early else 1.0)
    moved = value * (images * (op.values_in + op.values_out) + op.weights)
    fastest = FILL * op.groups + _plain_work(op, direction, images) / rate + moved / bandwidth
    for way in _ways(op, direction, have.cudnn):
        work, beside = _transformed(way, op, direction, images)
        waits = FILL * op.groups * (1 + way.staged)
        seconds = waits + work / (rate * way.pace) + (moved + value * beside) / bandwidth
        fits = not way.staged or value * beside / 2.0 <= have.workspace
        fastest = np.where(fits, np.minimum(fastest, seconds), fastest)
    return np.asarray(fastest)


def _ways(op: Convolution, direction: Direction, cudnn: float) -> Iterator[Transform]:
    """The ways that the release has for a window and direction."""
    side, other = op.window
    for way in WAYS if side == other else ():
        fits = side in way.made_for if way.made_for else side <= way.rows
        if fits and cudnn >= way.since(direction):
            yield way


def _plain_work(op: Convolution, direction: Direction, images: Array) -> Array:
    """FLOPs over what the depth of a product, or for a weight its channels, leave of the rate."""
    window = op.window[0] * op.window[1]
    channels, outputs = op.channels / op.groups, op.outputs / op.groups
    depth = {
        "forward": channels * window,
        "data": outputs * window,
        "weight": min(channels, outputs),
    }[direction]
    return np.asarray(images * op.flops(1) / PLAIN_PACE * (1.0 + HALF_DEPTH / depth))


def _transformed(
    way: Transform, op: Convolution, direction: Direction, images: Array
) -> tuple[Array, Array]:
    """FLOPs over what few channels and tiles leave of the rate; values moved beside the tensors."""
    rows, columns = op.image_in if direction == "data" else op.image_out
    step = way.rows - op.window[0] + 1
    tiles = images * -(-rows // step) * -(-columns // step)
    channels, outputs = op.channels / op.groups, op.outputs
    narrow = HALF_CHANNELS[direction] / min(channels, outputs / op.groups)
    work = 2.0 * way.products * tiles * channels * outputs
    few = 0.0 if direction == "weight" else way.half_tiles / tiles
    work = work * (1.0 + narrow) * (1.0 + few)
    images_too = tiles * (op.channels + outputs) * way.staged
    return np.asarray(work), np.asarray(2.0 * way.values * (channels * outputs + images_too))
