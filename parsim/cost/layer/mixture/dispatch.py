"""Seconds of moving a micro-batch's tokens to their experts, or back, by dispatcher.

    alltoall            a copy for each of a token's k experts, by NCCL's all-to-all
    deepep, hybridep    one for each rank that holds any of them; between nodes one for each node,
                        which its ranks then share over NVLink

How many ranks or nodes hold any of a token's experts: `met`.

Source: Megatron-Core's dispatchers; DeepEP and its branch hybrid-ep, whose README files time both
on H100, B200 and GB200.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, comb, floor, gcd

import numpy as np

from parsim.arrays import Array
from parsim.cluster.hardware import System
from parsim.cost.collective.group_bandwidth import Groups, group_spine
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """What of a token's `top_k` experts decides where it is sent: its `top_groups` of `groups`.

    `dealt` is how many experts are dealt out in turn, k consecutive ones to each token (0: a
    token's are drawn).
    """

    top_k: int
    groups: int = 1
    top_groups: int = 1
    dealt: int = 0

    def met(self, holders: Array) -> Array:
        """How many of equal `holders` of neighbouring experts have any of a token's, (B,).

        With n holders and k experts drawn evenly n (1 - (1 - 1/n)^k). Where the experts are all of
        t of G groups, a holder of G/n whole groups has j of those t by chance (hypergeometric) and
        a share j/t of their experts; a holder of a part of a group has G/(n t), or nothing. Of the
        k experts it has none with probability (1 - share)^k.

        Where experts are dealt out in turn a token meets the holders of its stretch of them.

        Source: DeepSeek-V3 (arXiv:2412.19437), section 2.1.2: at most 4 nodes for each token;
        FakeBalancedGate of NeMo AutoModel (commit 89e3a9f, components/moe/layers.py).
        """
        if self.dealt:
            return self._by_holders(holders, self._in_turn)
        if self.top_groups >= self.groups:
            return np.asarray(holders * (1.0 - (1.0 - 1.0 / holders) ** self.top_k))
        return self._by_holders(holders, self._among)

    @staticmethod
    def _by_holders(holders: Array, met: Callable[[float], float]) -> Array:
        """What is met of each number of holders, which is asked for once."""
        distinct, where = np.unique(holders, return_inverse=True)
        return np.array([met(count) for count in distinct])[where].reshape(holders.shape)

    def _in_turn(self, holders: float) -> float:
        """How many of so many holders a stretch of k experts touches, over all its starts."""
        each = self.dealt / holders
        starts = np.arange(0, self.dealt, gcd(self.top_k, self.dealt))
        touched = np.floor((starts + self.top_k - 1) / each) - np.floor(starts / each) + 1.0
        return float(np.minimum(touched, holders).mean())

    def _among(self, holders: float) -> float:
        """How many of so many holders a token of limited groups meets."""
        each = self.groups / holders
        if each <= 1.0:
            share = each / self.top_groups
            return self.top_groups / each * (1.0 - (1.0 - share) ** self.top_k)
        # where groups do not divide evenly some holders have one more than others
        fewer, more = floor(each), ceil(each)
        part = each - fewer
        return holders * ((1.0 - part) * self._holds(fewer) + part * self._holds(more))

    def _holds(self, whole: int) -> float:
        """Probability that a holder of so many whole groups has any of a token's experts."""
        every, top = comb(self.groups, self.top_groups), self.top_groups
        return sum(
            comb(whole, taken)
            * comb(self.groups - whole, top - taken)
            / every
            * (1.0 - (1.0 - taken / top) ** self.top_k)
            for taken in range(1, min(whole, top) + 1)
        )


def dispatch_time(
    system: System, dispatcher: str, *, tokens: Array, row: float, routing: Routing, copies: Message
) -> Array:
    """Seconds of one dispatch or combine of `tokens` of `row` bytes over ep ranks, (B,).

    latency + met ranks x bytes / link inside a node, latency + met nodes x bytes / interfaces
    between nodes; what crosses leaf groups shares their up-links with all nodes' tokens. `copies`
    are all of a token's, which a dispatcher that sends fewer does not need.
    """
    if dispatcher not in ONCE:
        return copies.seconds(system)
    library, where = ONCE[dispatcher], copies.where
    ranks, nodes = np.maximum(where.size, 1.0), np.maximum(where.nodes, 1.0)
    link = library.link * system.intra.bandwidth * np.minimum(8.0 / ranks, 1.0) ** library.fewer
    near = system.intra.latency + routing.met(ranks) * tokens * row / link
    inside = np.where(where.per_node > 1, near, 0.0)
    if system.network is None:
        return np.asarray(inside)
    sent = routing.met(nodes) * (nodes - 1.0) / nodes * tokens * row
    far = system.network.latency + sent / (library.network * _out_of_node(system, where))
    return np.asarray(np.maximum(inside, np.where(nodes > 1, far, 0.0)))


def copied_tokens(
    dispatcher: str, routing: Routing, *, tokens: Array, rows: Array, ranks: Array, local: Array
) -> Array:
    """Tokens, some more than once, that a rank copies around one dispatch or combine, (B,).

    T + R + 2 R   all-to-all: the copies in the order of ranks, and what arrived in that of its
                  experts, where a rank has several
    A + R         a dispatcher that sends a token once to a rank: what arrived, for each expert;
                  A = R n / k, if a token meets n ranks with its k experts

    Args:
        dispatcher: what moves them.
        routing: how a token's experts are chosen.
        tokens: T, those of the rank.
        rows: R, those that its experts work on.
        ranks: over which experts are spread.
        local: experts of the rank.

    Source: Megatron-LM (commit 1d9edcf8), docs/discussions, "Optimizing DeepSeek-V3 Training
    Performance on NVIDIA GB200 NVL72", sections 2.1.1 and 2.5: the flex dispatcher needs no
    permutation before it sends; HybridEP's copy from its buffer is part of the one behind.
    """
    if dispatcher in ONCE:
        return np.asarray(rows * routing.met(ranks) / routing.top_k + rows)
    return np.asarray(tokens + rows + np.where(local > 1, 2.0 * rows, 0.0))


def _out_of_node(system: System, where: Groups) -> Array:
    """Bytes/s of a device's interfaces, or of its part of the up-links: every one sends at once."""
    rate = system.network.node_bandwidth / system.devices_per_node if system.network else np.inf
    return np.asarray(rate / group_spine(system, replace(where, crossing=np.ones(1))))


def held_share(dispatcher: str, multiprocessors: int) -> float:
    """Share of the multiprocessors that a transfer beside compute takes from it."""
    taken = ONCE[dispatcher].multiprocessors if dispatcher in ONCE else CHANNELS
    return taken / multiprocessors
