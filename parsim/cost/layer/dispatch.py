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

from parsim.arrays import Array
from parsim.cluster.hardware import System
from parsim.cost.collective.message import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatcher:
    """What a library reaches: shares of the links' rates, and multiprocessors that it holds.

    `link` is what 8 ranks reach of NVLink and `fewer` the power of 8 over the ranks in more.
    """

    link: float
    fewer: float
    network: float
    multiprocessors: int


ONCE = {
    "deepep": Dispatcher(link=0.78, fewer=0.13, network=0.87, multiprocessors=20),
    "hybridep": Dispatcher(link=0.83, fewer=0.13, network=0.87, multiprocessors=32),
}
"""link: DeepEP's README, 153 to 158 GB/s of H800's 200; docs/README_Hybrid-EP.md, kernels alone in
bf16 on 8 ranks of GB200 764 and 737 GB/s of 900; fewer: the same, 632 and 597 on 36 ranks. network:
the same, H100 on 64 ranks 50 GB/s with the 1/8 that stay in the node, 43.7 of a NIC's 50.
multiprocessors: Megatron-Core's default of DeepEP; what Megatron-Bridge's scripts give HybridEP."""

CHANNELS = 24
"""Multiprocessors of NCCL's all-to-all where nothing says otherwise."""


def met(groups: Array, top_k: int) -> Array:
    """Groups of `groups` equal ones that hold any of a token's experts, on average."""
    return np.asarray(groups * (1.0 - (1.0 - 1.0 / groups) ** top_k))


def dispatch_time(
    system: System, dispatcher: str, *, tokens: Array, row: float, top_k: int, copies: Message
) -> Array:
    """Seconds of one dispatch or combine of `tokens` of `row` bytes over ep ranks, (B,).

    `copies` are all of a token's, which a dispatcher that sends fewer does not need.
    """
    if dispatcher not in ONCE:
        return copies.seconds(system)
    library, where = ONCE[dispatcher], copies.where
    ranks, nodes = np.maximum(where.size, 1.0), np.maximum(where.nodes, 1.0)
    link = library.link * system.intra.bandwidth * np.minimum(8.0 / ranks, 1.0) ** library.fewer
    inside = np.where(where.per_node > 1, met(ranks, top_k) * tokens * row / link, 0.0)
    if system.network is None:
        return np.asarray(inside)
    rate = library.network * system.network.nic_bandwidth * _nics(system)
    leaving = np.where(nodes > 1, met(nodes, top_k) * (nodes - 1.0) / nodes, 0.0)
    return np.asarray(np.maximum(inside, leaving * tokens * row / rate))


def _nics(system: System) -> float:
    """Interfaces of a device."""
    return system.network.nics_per_node / system.devices_per_node if system.network else 0.0


def held_share(dispatcher: str, multiprocessors: int) -> float:
    """Share of the multiprocessors that a transfer beside compute takes from it."""
    taken = ONCE[dispatcher].multiprocessors if dispatcher in ONCE else CHANNELS
    return taken / multiprocessors
