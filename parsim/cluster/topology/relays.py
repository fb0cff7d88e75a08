"""What devices of a node reach among themselves through hosts, or over NVLinks of others.

    gpu:0 ── pcie:0 ── host:0 ── host:1 ── pcie:1 ── gpu:5    the way of fewest cables

All messages go at once; the fullest cable decides. Source: NCCL's PATH_SYS and PATH_NVB (paths.cc).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from parsim.cluster.hardware import Cable


def relayed(
    cables: Iterable[Cable],
    direct: Mapping[tuple[int, int], float],
    flows: Sequence[tuple[int, int]],
) -> float:
    """Bytes/s of every flow through the hosts, over NVLinks of others where no host joins them.

    All at once, each by the way of fewest links.
    """
    rates = {
        pair: rate for (a, b), rate in direct.items() for pair in _both(f"gpu:{a}", f"gpu:{b}")
    }
    hosts = {
        pair: cable.bandwidth * cable.efficiency
        for cable in cables
        if cable.link_class != "nvlink"
        for pair in _both(cable.source, cable.target)
    }
    load: dict[tuple[str, str], float] = {}
    over_hosts, over_devices = _Ways(hosts), _Ways(rates)
    for first, last in flows:
        ends = f"gpu:{first}", f"gpu:{last}"
        way = over_hosts.between(*ends) or over_devices.between(*ends)
        if not way:
            return 0.0
        for hop in pairwise(way):
            load[hop] = load.get(hop, 0.0) + 1.0
    rates |= hosts
    return 1.0 / max(units / rates[hop] for hop, units in load.items())


def _both(first: str, last: str) -> tuple[tuple[str, str], tuple[str, str]]:
    return (first, last), (last, first)


class _Ways:
    """Ways of fewest links, which pass devices only where devices alone are joined."""

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self._next: dict[str, list[str]] = {}
        for source, target in pairs:
            self._next.setdefault(source, []).append(target)
        self._from: dict[str, dict[str, tuple[str, ...]]] = {}

    def between(self, first: str, last: str) -> tuple[str, ...]:
        """Parts on the way, both ends among them; empty where none leads there."""
        if first not in self._from:
            self._from[first] = self._all(first)
        return self._from[first].get(last, ())

    def _all(self, first: str) -> dict[str, tuple[str, ...]]:
        ways: dict[str, tuple[str, ...]] = {first: (first,)}
        for part in (queue := [first]):
            for target in self._next.get(part, ()):
                if target not in ways:
                    ways[target] = (*ways[part], target)
                    queue.append(target)
        return ways
