"""The tile model of a matrix product: output tiles dealt to multiprocessors in waves.

Works on flat arrays of shapes; `parsim/cost/kernel/kernels.py` brings shapes into that form. Every
step is a maximum, a sum or a minimum of terms that never fall as m, n, k or the batch grow, so
neither does their time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import floor, log2

import numpy as np

from parsim.arrays import Array, Columns, Num
from parsim.cluster.hardware import Device
from parsim.cost.kernel.smooth_max import smooth_max

CHUNK = 1 << 15
"""Shapes times candidates that are evaluated at a time: 256 KiB an array stays in the cache."""
FLOOR_EDGE, CORE_EDGE = 32.0, 128.0
"""A CPU core's block: 32 to 128 rows and columns, what the matrix needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiling:
    """Which tiles (rows, columns) and split-K factors a library can choose from.

    Without tiles there is one that fits the matrix (a CPU core). `corner` is the power of the
    smooth maximum of arithmetic and memory.
    """

    tiles: tuple[tuple[int, int], ...] = ()
    splits: tuple[int, ...] = (1,)
    corner: int = 8


_AMPERE = (
    *((256, 128), (128, 256), (128, 128), (256, 64), (64, 256), (128, 64), (64, 128), (64, 64)),
)
_HOPPER = (*_AMPERE, (128, 192), (192, 128))
_BLACKWELL = (*_HOPPER[:7], *_HOPPER[8:], (256, 256), (256, 192), (192, 256))
_SPLITS = (1, 2, 3, 4, 6, 8)
CORE = "core"
"""The tiling of a CPU core, whose blocks fit the matrix."""

TILINGS: Mapping[str, Tiling] = {
    "core": Tiling(corner=4),
    "ampere": Tiling(tiles=_AMPERE, splits=_SPLITS),
    "hopper": Tiling(tiles=_HOPPER, splits=_SPLITS),
    "blackwell": Tiling(tiles=_BLACKWELL, splits=_SPLITS),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Products(Columns):
    """Distinct products, one an entry: shape, bytes of an operand's element, bytes moved.

    C(m,n) = A(m,k) B(k,n), `batch` of them at once; columns of (N,). `value` are bytes of an
    element, `moved` all bytes to and from memory. `aligned` is the share of the rate that the
    alignment of the rows leaves.
    """

    m: Array
    n: Array
    k: Array
    batch: Array
    value: float
    moved: Array
    aligned: Array


def body_time(
    device: Device, rate: float, shapes: Products, splits: tuple[int, ...] | None = None
) -> Array:
    """Seconds of products without their launch, the best tile and split of each.

        blocks  = ceil(m / tm) ceil(n / tn) batch s                   s: split-K factor
        compute = 2 tm tn (k / s + k_half) / (a rate / SMs)           one block on one SM
        feed    = value (tm + tn) (k / s) / (L / SMs)                 its operands through the cache
        waves   = q ceil(blocks / SMs) + (1 - q) max(blocks / SMs, 1)
        body    = pnorm8(waves pnorm8(compute, feed), bytes / (hb H))
                  + [s > 1] (ts + 8 m n batch s / L)                  the sum of partial results

    Args:
        device: gives SMs, memory bandwidth H, cache bandwidth L and the other `gemm_*` constants.
        rate: FLOP/s of the whole device that one block after the other reaches, where rows are
            aligned (a = 1).
        shapes: distinct products.
        splits: split-K factors to choose from, where they are not the tiling's.

    Source: tile model with soft quantisation, fitted to the vidur and SimuMax tables;
    `reports/kernels.md` has its constants and errors on shapes outside the fit.
    Leaves out: the library's real choice of kernel (the minimum is its best case), contents of the
    matrices.
    """
    tiling = TILINGS[device.gemm_tiles]
    if splits is not None and tiling.tiles:
        tiling = replace(tiling, splits=splits)
    width = max(1, CHUNK // max(1, len(tiling.tiles) * len(tiling.splits)))
    parts = [
        _part_time(device, tiling, rate, shapes.take(slice(start, start + width)))
        for start in range(0, len(shapes.m), width)
    ]
    return np.concatenate(parts) if parts else np.zeros(0)


def _part_time(device: Device, tiling: Tiling, rate: float, shapes: Products) -> Array:
    rows, columns, split = _candidates(tiling, shapes)
    sms, cache = float(device.sm_count), device.gemm_cache_bandwidth
    m, n, batch = shapes.m[:, None], shapes.n[:, None], shapes.batch[:, None]
    depth = shapes.k[:, None] / split
    blocks = np.ceil(m / rows) * np.ceil(n / columns) * (batch * split)
    pace = 2.0 * sms / (rate * shapes.aligned[:, None])
    per_block = pace * rows * columns * (depth + device.gemm_k_half)
    feed = (shapes.value * sms / cache) * (rows + columns) * depth
    q, full = device.gemm_wave_quantisation, blocks / sms
    waves = q * np.ceil(full) + (1.0 - q) * np.maximum(full, 1.0)
    memory = shapes.moved[:, None] / (device.memory_bandwidth * device.gemm_memory_efficiency)
    body = smooth_max(waves * smooth_max(per_block, feed, 8), memory, tiling.corner)
    gather = device.gemm_split_latency + (8.0 / cache) * m * n * batch * split
    return np.asarray((body + np.where(split > 1.0, gather, 0.0)).min(axis=1))


def _candidates(tiling: Tiling, shapes: Products) -> tuple[Array, Array, Array]:
    """Rows, columns and split of every candidate, shapes (1 or N, candidates)."""
    if not tiling.tiles:
        return core_edge(shapes.m)[:, None], core_edge(shapes.n)[:, None], np.ones((1, 1))
    tiles = np.array(tiling.tiles, dtype=np.float64)
    splits = np.array(tiling.splits, dtype=np.float64)
    rows, columns = (np.repeat(edge, len(splits))[None, :] for edge in tiles.T)
    return rows, columns, np.tile(splits, len(tiles))[None, :]


def core_edge(size: Array) -> Array:
    """Edge of a CPU core's block along one dimension: a power of two from 32 to 128."""
    return np.asarray(np.clip(2.0 ** np.ceil(np.log2(size)), FLOOR_EDGE, CORE_EDGE))


LOAD = 16.0
"""Bytes of the widest load of a thread."""
WIDEST = 2.0
"""Values of more bytes are not multiplied on tensor cores, or were not measured."""


def aligned_bytes(sides: Sequence[Num], value: float) -> Array:
    """The largest of 16, 8, 4, 2 and 1 bytes that divides the rows of all sides.

    Args:
        sides: values along which operands and result lie in memory, arrays that broadcast.
        value: bytes of one of them; scales that lie apart do not count.
    """
    value, size = 2.0 ** floor(log2(value)), np.asarray(LOAD)
    for side in sides:
        row = np.ceil(np.asarray(side, dtype=np.float64)) * value
        step = np.full(row.shape, LOAD)
        while np.any(uneven := (np.mod(row, step) > 0.0) & (step > 1.0)):
            step = np.where(uneven, step / 2.0, step)
        size = np.minimum(size, step)
    return np.asarray(size)


def aligned_share(device: Device, sides: Sequence[Num], value: float) -> Array:
    """The share of a product's usual rate that the alignment of its rows leaves.

    A thread of a GPU loads 16 bytes at a time and tensor cores are fed so; rows that start between
    have to be loaded in pieces. The sides that count are those along which the operands lie in
    memory.

    1 at 16 bytes, `gemm_unaligned` at 8 and 4, `gemm_odd` below.

    Source: sweeps of 1,000 products on A100 and V100 (EleutherAI/cookbook, after arXiv:2401.14489),
    `parsim/validation/data/kernels/gemm_alignment_cookbook.csv`: the rate has these three steps and
    does not depend on which power of two beyond 16 bytes divides a side.
    Leaves out: which operand it is (0.55 to 0.67 on A100), CPUs, values of more than 2 bytes.
    """
    if device.gemm_unaligned == device.gemm_odd == 1.0 or value > WIDEST:
        return np.ones(np.shape(sides[0]))
    size = aligned_bytes(sides, value)
    share = np.where(size >= 4.0, device.gemm_unaligned, device.gemm_odd)
    return np.where(size >= LOAD, 1.0, share)
