"""What compressing gradients costs: choosing the largest values or rounding all, and undoing it.

    top_k   worker: rest added, magnitudes, a selection, the chosen values copied and cleared
            sum:    each value is added where its index says
    half    worker: a cast to 16 bit;   sum: 16-bit values added to an fp32 sum

Source: bytes by counting what is read and written, per value of the gradient (N) and per chosen one
(K); selection by torch's multi-block top-k, a radix select over 8 bits a pass
(aten/src/ATen/native/cuda/TensorTopK.cu): four passes over fp32 values and one that gathers. Order
of the method: Aji and Heafield (EMNLP 2017), Stich et al. (NIPS 2018), as the executor does it.
"""

from __future__ import annotations

from parsim.arrays import Array
from parsim.cluster.hardware import Device
from parsim.cost.kernel.gemm import CORE
from parsim.cost.kernel.kernels import memory_time
from parsim.plan.strategies import Servers

SELECT = "top_k"
"""Kind of the selection's kernels, by which a calibration may correct their time."""
CAST = "half"
"""Kind of a cast to 16 bit."""

READS_AND_WRITES = 3.0
"""A gradient is added to a sum of its width: both are read, the sum is written."""
INDEX, VALUE = 4.0, 4.0
"""Bytes of an index, and of a value in fp32, in which gradients are kept and summed."""
FEEDBACK = 3 * VALUE
"""What was not sent is added: gradient and rest read, their sum written."""
MAGNITUDES = 2 * VALUE
SELECTION = 5 * VALUE
"""Four passes of eight bits that count, and one that gathers."""
CHOSEN = 56.0
"""Bytes of each chosen value, whose index has 8: gathered 8 + 4 + 4, the index narrowed 8 + 4, both
copied into one message 8 + 8, the value cleared in what is kept 8 + 4."""
CORE_SECONDS, CORE_CHOSEN = 3.5e-9, 25e-9
"""A CPU core's seconds for each value among which it selects, and for each that it chooses: masks,
a partition of those above a sampled bound, and copies. Measured: 2.5 to 14.6 ns a value in all, of
0.2 to 8 million fp32 values and shares of 2 to 80 %, zeros among them or not, where this says 3.8
to 13.5 (one core of a shared 2-core Xeon, torch 2.13, numpy 2.4)."""
SELECT_KERNELS, CAST_KERNELS = 12, 1


def chosen_values(strategy: Servers, values: float, width: float) -> float:
    """How many of `values` of `width` bytes are sent, each with an index.

    `compression` is the share of the bytes: c width N = K (width + 4).
    """
    return strategy.compression * width * values / (width + INDEX)


def compress_time(device: Device, strategy: Servers, values: float, width: float) -> Array | float:
    """Seconds in which a worker packs a gradient of so many values; 0 where all is sent."""
    if strategy.compression == 1.0:
        return 0.0
    if strategy.compressor == "half":
        return memory_time(device, (VALUE + VALUE / 2) * values, CAST_KERNELS, CAST)
    chosen = chosen_values(strategy, values, width)
    if device.gemm_tiles == CORE:
        return CORE_SECONDS * values + CORE_CHOSEN * chosen
    moved = (FEEDBACK + MAGNITUDES + SELECTION) * values + CHOSEN * chosen
    return memory_time(device, moved, SELECT_KERNELS, SELECT)


def sum_bytes(strategy: Servers, size: float, width: float) -> float:
    """Bytes that a server's memory moves when it adds a gradient of `size` bytes to its sum."""
    if strategy.compression == 1.0:
        return READS_AND_WRITES * size
    values = size / width
    if strategy.compressor == "half":
        return (VALUE / 2 + 2 * VALUE) * values
    return (INDEX + width + 2 * VALUE) * chosen_values(strategy, values, width)


def unpack_bytes(strategy: Servers, size: float, width: float) -> float:
    """Bytes that turn a message into the gradient of `size` bytes; 0 where it is one."""
    if strategy.compression == 1.0:
        return 0.0
    values = size / width
    if strategy.compressor == "half":
        return (VALUE / 2 + VALUE) * values
    return VALUE * values + (INDEX + width + VALUE) * chosen_values(strategy, values, width)
