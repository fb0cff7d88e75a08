"""Seconds of moving a micro-batch's tokens to their experts, or back, by dispatcher.

    alltoall            a copy for each of a token's k experts, by NCCL's all-to-all
    deepep, hybridep    one for each rank that holds any of them; between nodes one for each node,
                        which its ranks then share over NVLink

A token whose k experts of E are drawn evenly meets a group that holds a share g of the experts with
probability 1 - (1 - g)^k, so of n groups n (1 - (1 - 1/n)^k).

Source: Megatron-Core's dispatchers; DeepEP and its branch hybrid-ep, whose README files time both
on H100, B200 and GB200.
Leaves out: routing by groups of experts, which spares nodes; 8-bit dispatch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parsim.cluster.hardware import System
from parsim.cost.collectives import collective_time
from parsim.cost.placed import Groups

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatcher:
    """What a library reaches: share of the links' rates, and multiprocessors that it holds."""

    link: float
    network: float
    multiprocessors: int


ONCE = {
    "deepep": Dispatcher(link=0.78, network=0.87, multiprocessors=20),
    "hybridep": Dispatcher(link=0.8, network=0.87, multiprocessors=32),
}
"""link: DeepEP's README, 153 to 158 GB/s of H800's 200; docs/README_Hybrid-EP.md, kernels alone in
bf16 on 8 ranks of GB200 764 and 737 GB/s, on 36 ranks 632 and 597, of 900. network: the same, H100
on 64 ranks 50 GB/s with the 1/8 that stay in the node, 43.7 of a NIC's 50. multiprocessors:
Megatron-Core's default of DeepEP; Megatron-Bridge's performance scripts for HybridEP."""

CHANNELS = 24
"""Multiprocessors of NCCL's all-to-all where nothing says otherwise."""


def met(groups: Array, top_k: int) -> Array:
    """Groups of `groups` equal ones that hold any of a token's experts, on average."""
    return np.asarray(groups * (1.0 - (1.0 - 1.0 / groups) ** top_k))


def dispatch_time(
    system: System, dispatcher: str, *, tokens: Array, row: float, top_k: int, where: Groups
) -> Array:
    """Seconds of one dispatch or combine of `tokens` of `row` bytes over ep ranks, (B,)."""
    if dispatcher not in ONCE:
        return collective_time(system, "all_to_all", tokens * top_k * row, where)
    made = ONCE[dispatcher]
    inside = _inside(where, top_k) * tokens * row / (made.link * system.intra.bandwidth)
    if system.network is None:
        return np.asarray(inside)
    rate = made.network * system.network.nic_bandwidth * _nics(system)
    leaving = np.where(where.nodes > 1, met(np.maximum(where.nodes, 1.0), top_k), 0.0)
    leaving = leaving * (where.nodes - 1.0) / np.maximum(where.nodes, 1.0)
    return np.asarray(np.maximum(inside, leaving * tokens * row / rate))


def _inside(where: Groups, top_k: int) -> Array:
    """Copies of a token of a rank that cross NVLink, as many as it receives of others."""
    ranks = np.maximum(where.size, 1.0)
    here = np.maximum(where.per_node, 1.0)
    return np.asarray(met(ranks, top_k) * (here - 1.0) / here)


def _nics(system: System) -> float:
    """Interfaces of a device."""
    assert system.network is not None
    return system.network.nics_per_node / system.devices_per_node


def held_share(dispatcher: str, multiprocessors: int) -> float:
    """Share of the multiprocessors that a transfer beside compute takes from it."""
    taken = ONCE[dispatcher].multiprocessors if dispatcher in ONCE else CHANNELS
    return taken / multiprocessors
