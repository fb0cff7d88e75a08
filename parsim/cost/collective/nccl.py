"""Which algorithm and protocol NCCL (or RCCL) takes: its own model, kept as versioned tables.

    seconds = latency + S / bandwidth, least over (algorithm, protocol)

from `nccl.yaml`, by release: latencies per hop, bandwidth of channels and its caps per GPU
generation and node count. Only the choice is used; see `parsim/cost/collective/measured_curve.py`
for seconds.
Leaves out: the tree's correction by size (0.4 to 0.6 around 64 KiB to 1 MiB), CPU-dependent LL caps
across nodes, NVLS without its lost channel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from parsim.errors import CatalogError, did_you_mean

Protocol = Literal["LL", "LL128", "Simple"]
PROTOCOLS: tuple[Protocol, ...] = ("LL", "LL128", "Simple")
GB = 1e9
US = 1e-6
RCCL_INSIDE = 2.0
"""Nodes up to which RCCL ranks algorithms by the links inside a node alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What NCCL knows of a collective: bytes, ranks and their placement, links.

    `link` is the class of hops inside a node (nvlink or pcie), `total` what a device's channels
    carry there and `out` what leaves a node, bytes/s. `nvls` and `sharp` say that switches reduce.
    """

    kind: str
    size: float
    ranks: float
    per_node: float
    nodes: float
    link: str
    generation: str
    total: float
    out: float
    nvls: bool
    sharp: bool


@cache
def tables() -> Mapping[str, Mapping[str, Any]]:
    """Tables by release; a release starts from the one it names in `from`."""
    from ruamel.yaml import YAML

    text = (files("parsim.cost") / "nccl.yaml").read_text(encoding="utf-8")
    document: dict[str, dict[str, Any]] = YAML(typ="safe", pure=True).load(text)
    known: dict[str, Mapping[str, Any]] = {}
    for name, entry in document.items():
        known[name] = {**known.get(entry.get("from", ""), {}), **entry}
    return known


def table(version: str) -> Mapping[str, Any]:
    """The table of a release.

    Raises:
        CatalogError: there is none.
    """
    known = tables()
    if version not in known:
        raise CatalogError(
            f"library {version!r} has no table{did_you_mean(version, known)}; "
            f"allowed: {', '.join(known)}"
        )
    return known[version]


def estimates(version: str, call: Call) -> dict[tuple[str, Protocol], float]:
    """NCCL's own estimate of each algorithm and protocol it could take, seconds.

    Raises:
        CatalogError: no such release.
    """
    known = table(version)
    seconds: dict[tuple[str, Protocol], float] = {}
    for algorithm in _algorithms(known, call):
        protocols = ("Simple",) if algorithm not in ("ring", "tree") else PROTOCOLS
        for protocol in protocols:
            bandwidth = _bandwidth(known, call, algorithm, protocol)
            if bandwidth > 0:
                latency = _latency(known, call, algorithm, PROTOCOLS.index(protocol))
                seconds[algorithm, protocol] = latency * US + call.size / bandwidth
    return seconds


def _algorithms(known: Mapping[str, Any], call: Call) -> list[str]:
    names = ["ring"]
    several = call.nodes > 1
    if call.kind == "all_reduce":
        names.append("tree")
        if call.nvls:
            names.append("nvls_tree" if several else "nvls")
        if call.sharp and several:
            names.append("collnet")
    if call.kind in ("all_gather", "reduce_scatter") and known["pat"]:
        names += ["pat"] if several and call.per_node == 1 else []
    return names


def _steps(call: Call) -> float:
    """Steps of a ring: one per rank, twice for an all-reduce."""
    return (2.0 if call.kind == "all_reduce" else 1.0) * (call.ranks - 1.0)


def _latency(known: Mapping[str, Any], call: Call, algorithm: str, i: int) -> float:
    """Microseconds before the last byte of an empty message arrives."""
    inside, across = known["hop_us"][call.link], known["hop_us"]["network"]
    doublings = math.log2(max(call.nodes, 1.0))
    base: float = known["base_us"][algorithm.removesuffix("_tree")][i]
    if algorithm == "ring":
        outer = _steps(call) * (call.nodes - 1.0) / (call.ranks - 1.0)
        return float(base + (_steps(call) - outer) * inside["ring"][i] + outer * across["ring"][i])
    if algorithm == "tree":
        hops = (call.per_node - 1.0) * inside["tree"][i] + doublings * across["tree"][i]
        return float(base + 2.0 * hops)
    if algorithm == "pat":
        return float(base + doublings * across["pat"] / 3.5 + 2.8 * call.ranks)
    if algorithm == "collnet":
        peers = call.per_node - 1.0
        return float(2.0 * (min(1.0, peers) * inside["collnet"] + 0.4 * peers) + across["collnet"])
    return float(inside["nvls"] + 2.0 * doublings * across["nvls_tree"])


def _share(
    shares: Sequence[Sequence[float]], call: Call, algorithm: str, protocol: Protocol
) -> float:
    """Bandwidth of S by RCCL's table: a share of the links' by nodes (1, 2, more) and protocol."""
    share = shares[int(min(call.nodes, 3)) - 1][PROTOCOLS.index(protocol)]
    total = call.total if call.nodes <= RCCL_INSIDE else min(call.total, call.out)
    return share * total * (call.ranks / _steps(call) if algorithm == "ring" else 0.5)


def _bandwidth(known: Mapping[str, Any], call: Call, algorithm: str, protocol: Protocol) -> float:
    """Bandwidth of S, bytes/s, after NCCL's caps, or RCCL's shares."""
    if algorithm in known.get("shares", ()):
        return _share(known["shares"][algorithm], call, algorithm, protocol)
    caps = _Caps(known=known, call=call)
    if algorithm in ("ring", "pat"):
        return caps.ring(protocol) * (0.75 if algorithm == "pat" else 1.0)
    if algorithm == "tree":
        return caps.tree(protocol)
    if algorithm == "collnet":
        inside = call.total * call.per_node / max(2.0 * (call.per_node - 1.0), 1.0)
        return min(inside, call.out)
    return caps.nvls() if algorithm == "nvls" else caps.nvls_tree()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Caps:
    """What NCCL's tables cap a call's bandwidth at, by algorithm."""

    known: Mapping[str, Any]
    call: Call

    @property
    def _channels(self) -> float:
        return float(self.known["channels"][self.call.generation])

    @property
    def _column(self) -> int:
        """The column of a table by nodes: 1, 2, more."""
        return int(min(self.call.nodes, 3)) - 1

    def _of_nodes(self, table: str) -> float:
        return float(self.known[table][self.call.generation][self._column])

    def ring(self, protocol: Protocol) -> float:
        """Each byte passes every rank."""
        total = min(self.call.total, self.call.out) / GB
        if protocol == "LL":
            total = min(total / 2.0, self._of_nodes("ll_total"))
        if protocol == "LL128":
            each = self.known["ring_ll128_channel"][self.call.generation]
            total = min(0.92 * total, each * self._channels)
        return float(total * GB * (self.call.ranks / _steps(self.call)))

    def tree(self, protocol: Protocol) -> float:
        """Two trees, of which each has half of the bytes, up and down."""
        call = self.call
        total = (call.total if call.nodes == 2 else min(call.total, call.out)) / GB
        total = min(0.92 * total, self._of_nodes("tree_channel") * self._channels)
        if protocol == "LL":
            total = min(total / 3.8, self._of_nodes("ll_total"))
        if protocol == "LL128":
            share = 7.0 / 9.0 if call.nodes == 1 else 120.0 / 128.0
            total = min(total * share, self._of_nodes("tree_ll128_channel") * self._channels)
        return float(total * GB / 2.0)

    @property
    def _share_of_switch(self) -> float:
        efficiency = self.known["nvls_efficiency"].get(self.call.generation, 0.0)
        return float(efficiency * (self._channels - 1.0) / self._channels * 2.0)

    def nvls(self) -> float:
        """The switch of one node adds up."""
        return float(
            self.call.total * self._share_of_switch * (self.call.ranks / _steps(self.call))
        )

    def nvls_tree(self) -> float:
        """The switches add up, and trees join them."""
        call, tables = self.call, self.known["nvls_tree_channel"]
        each = tables.get(call.generation, [0, 0, 0])[self._column]
        capped = each * self._channels * GB
        wire = call.out * (2.0 if call.nodes == 2 else 1.0)
        return float(min(call.total * self._share_of_switch, capped, wire) / 2)
