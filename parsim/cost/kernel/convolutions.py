"""Seconds of convolutions: implicit matrix products on matrix units, classes of layers in fp32.

Matrix units (16 bit, tf32, a CPU core's vector units) run a convolution as the product that it is,
in the tiles of `gemm.py`, with the bytes of tensors rather than of unrolled windows. Without them
libraries also multiply transformed tiles, at rates in direct FLOPs above the peak (`windows.py`).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from parsim.arrays import Array, Num, distinct
from parsim.cluster.hardware import Device
from parsim.cost.kernel.gemm import CORE, Products, body_time
from parsim.cost.kernel.residuals import measured_factor
from parsim.cost.kernel.smooth_max import smooth_max
from parsim.cost.kernel.windows import Ways, window_time
from parsim.model.networks import Convolution, Direction

SPLITS = (1, 2, 3, 4, 6, 8, 16, 32, 64)
"""Split-K factors of a convolution's kernels: a weight gradient has few tiles and a huge depth."""
FILLING = 30e-6
"""Seconds of an fp32 kernel's unfilled first and last waves, fitted with the classes' shares."""
FULL_COLUMNS = 32.0
"""Columns of a group below which an fp32 kernel's tile is partly empty."""
ALL_WAYS = Ways()
"""Where nothing is said every way there is, in as much memory as it takes."""
KEPT = 8192
"""Convolutions, by device, direction and images, whose seconds are remembered."""


def convolution_time(
    device: Device,
    precision: str,
    op: Convolution,
    direction: Direction,
    images: Num,
    value: float,
    have: Ways = ALL_WAYS,
) -> Array:
    """Time of one direction of a convolution over `images` images.

        matrix units  t0 + the tile model of m, n, k and g products, at a share of its rate
        fp32          30 us + pnorm4(2 N K P Q (C / g) R S / (e P), bytes / (hb H))
                      3x3 and more of stride 1: the least of several ways (`window_time`)

    bytes = value (NCHW + KCRS / g + NKPQ), which every algorithm moves at least. e depends on
    direction and class: 1x1, strided, other; in groups of few columns it shrinks.

    Args:
        device: gives peak, bandwidths, the `gemm_*` and `convolution` constants.
        precision: which peak.
        op: the sizes.
        direction: forward, the input's gradient or the weight's.
        images: of one micro-batch.
        value: bytes of one value.
        have: the library's ways in fp32.

    Source: DeepBench (baidu-research, Apache-2.0): 94 layers of 4 to 32 images on V100, T4, P100,
    Titan Xp; median error 20 % of one kernel, far less of a network's sum.
    Leaves out: the choice that autotuning makes, workspaces, cliffs of single shapes.
    """
    (sizes,), back, whole = distinct(images)
    numbers = tuple(sizes.tolist())
    seconds = _time_of_sizes(device, precision, op, direction, numbers, value, have)
    return np.asarray(seconds if back is None else seconds[back]).reshape(whole)


@lru_cache(maxsize=KEPT)
def _time_of_sizes(
    device: Device,
    precision: str,
    op: Convolution,
    direction: Direction,
    sizes: tuple[float, ...],
    value: float,
    have: Ways,
) -> Array:
    """Time of a direction of a convolution for each of some numbers of images, read-only."""
    images = np.array(sizes)
    moved = value * (images * (op.values_in + op.values_out))
    moved = moved + value * op.weights
    share = device.convolution_share
    where = product_sides(op, direction, images)
    if on_matrix_units(device, precision):
        known = share(f"early_{direction}") if have.early else 1.0
        seconds = _tiled(device, precision, where, op, direction, moved, value, known)
    elif op.kind == "window":
        seconds = window_time(device, op, direction, images, value, have)
    else:
        rate = device.peak(precision) * share(f"{op.kind}_{direction}")
        rate = rate * (share("early") if have.early else 1.0)
        filled = min(op.outputs / op.groups / FULL_COLUMNS, 1.0)
        work = images * op.flops(1) / (rate * filled)
        memory = moved / (device.memory_bandwidth * device.gemm_memory_efficiency)
        seconds = FILLING + smooth_max(work, memory, 4)
    factor = measured_factor(device.residuals, f"conv_{direction}", *where)
    seconds = np.asarray(seconds * factor)
    seconds.flags.writeable = False
    return seconds


def on_matrix_units(device: Device, precision: str) -> bool:
    """Whether convolutions run as tiled products: all but a GPU's fp32."""
    return precision != "fp32" or device.gemm_tiles == CORE


def product_sides(op: Convolution, direction: Direction, images: Num) -> tuple[Array, Array, Array]:
    """m, n, k of one group's product (`parsim/model/networks.py`)."""
    count = np.asarray(images, dtype=np.float64)
    outputs, channels = op.outputs / op.groups, op.channels / op.groups
    window = op.window[0] * op.window[1]
    rows_out = count * op.image_out[0] * op.image_out[1]
    rows_in = count * op.image_in[0] * op.image_in[1]
    every = np.ones_like(count)
    if direction == "forward":
        return rows_out, every * outputs, every * window * channels
    if direction == "data":
        return rows_in, every * channels, every * window * outputs / op.phases
    return every * outputs, every * window * channels, rows_out


def _tiled(
    device: Device,
    precision: str,
    sides: tuple[Array, Array, Array],
    op: Convolution,
    direction: Direction,
    moved: Array,
    value: float,
    known: float,
) -> Array:
    (m, n, k, batch, traffic), back, whole = distinct(*sides, op.groups, moved)
    share = device.gemm_efficiency * device.gemm_sustained
    rate = device.peak(precision) * share * device.convolution_share(f"tensor_{direction}")
    rate = rate * known
    aligned = np.ones_like(m)  # the library pads channels
    products = Products(m=m, n=n, k=k, batch=batch, value=value, moved=traffic, aligned=aligned)
    seconds = device.gemm_latency + body_time(device, rate, products, SPLITS)
    return np.asarray(seconds if back is None else seconds[back]).reshape(whole)
