"""How much slower compute runs while a collective runs beside it on the same device.

NCCL's kernels hold one multiprocessor for each channel, and every byte on the wire is read and
written in device memory. So a product beside a collective has SMs - channels multiprocessors, in
whole waves of tiles, and a memory-bound kernel has what is left of the bandwidth.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from parsim.arrays import Array
from parsim.cluster.hardware import Device, System
from parsim.cost.layer.passes import LayerCost

TOUCHES = 3.0
"""Memory accesses per byte on the wire: a ring step reads what came and its own part, writes one.

Source: the data path of NCCL's ring reduce-scatter; an all-gather reads one and writes one or two.
"""


def crowded_device(system: System) -> Device:
    """The device as products see it beside a collective: fewer multiprocessors, less peak."""
    device = system.device
    left = device.sm_count - system.channels
    if system.channels <= 0 or left <= 0:
        return device
    share = left / device.sm_count
    peaks = {name: peak * share for name, peak in device.peak_flops.items()}
    return replace(device, sm_count=left, peak_flops=peaks)


def memory_share(system: System, busbw: Array) -> Array:
    """Share of the memory bandwidth that a collective leaves to compute, (B,).

    1 - 3 busbw / HBM, `busbw` (B,) the bytes a second that one rank sends meanwhile: a message that
    mostly waits moves few.
    """
    return np.maximum(1.0 - TOUCHES * busbw / system.device.memory_bandwidth, 0.1)


def measured_loss(system: System, *, messages: bool = False) -> float | None:
    """Share of an exchange's time that compute beside it loses; None: it was not measured.

    interference min(links' rate / interference_rate, 1): a byte that a core moves takes it as long
    on slower links, where it waits for the rest of the time.

    Leaves out: slower links between nodes.
    """
    lost = system.message_interference if messages else None
    lost = system.interference if lost is None else lost
    if lost is None or system.interference_rate is None:
        return lost
    rate = system.intra.rate
    return lost * min(rate / system.interference_rate, 1.0)


def speed_beside(
    system: System, busbw: Array, layers: tuple[LayerCost, ...], *, messages: bool = False
) -> Array:
    """Share of its speed that compute keeps beside a collective, or messages, (B,), 0 to 1.

    x C / C' + y M / N + (1 - x - y) h: of a layer's forward x are matrix products, C and C' their
    seconds on all N and on the remaining M multiprocessors, y is attention and h the memory's
    share. A measured `interference` takes its place: 1 - `measured_loss`.

    Source: 24 of an H100's 132 multiprocessors held by an all-gather, a GEMM of 132 tiles beside
    it takes twice its time (developer.nvidia.com forum 337991), and a GEMM of many waves 1.2.
    Leaves out: clocks, L2, and that the collective itself is slowed.
    """
    lost = measured_loss(system, messages=messages)
    if lost is not None:
        return np.full(busbw.shape, 1.0 - lost)
    whole, kept, by_memory = _progress(system, layers)
    progress = kept + by_memory * memory_share(system, busbw)
    return np.where(whole > 0, np.clip(progress / np.maximum(whole, 1e-30), 0.0, 1.0), 1.0)


def shares_kept(system: System, layers: tuple[LayerCost, ...]) -> tuple[Array, Array]:
    """The two parts of `speed_beside`, (B,) each: whatever a collective leaves of the bandwidth.

    And that of which compute keeps the share which is left.
    """
    lost = measured_loss(system)
    whole, kept, by_memory = _progress(system, layers)
    if lost is not None:
        return np.full(whole.shape, 1.0 - lost), np.zeros_like(whole)
    some, seconds = whole > 0, np.maximum(whole, 1e-30)
    return np.where(some, kept / seconds, 1.0), np.where(some, by_memory / seconds, 0.0)


def _progress(system: System, layers: tuple[LayerCost, ...]) -> tuple[Array, Array, Array]:
    """(whole, kept, by memory) of layers' forwards, seconds, (B,) each.

    In the `whole` seconds of their kernels `kept` ones of progress are made beside a collective,
    and of those `by memory` the share that it leaves of the bandwidth.
    """
    whole, alone, beside, core = (
        np.asarray(sum(parts))
        for parts in zip(
            *(
                (
                    each.forward.kernels,
                    each.products.kernels,
                    each.crowded.kernels,
                    each.core.kernels,
                )
                for each in layers
            ),
            strict=True,
        )
    )
    multiprocessors = crowded_device(system).sm_count / system.device.sm_count
    kept = alone * alone / np.maximum(beside, 1e-30) + multiprocessors * core
    return whole, kept, whole - alone - core
