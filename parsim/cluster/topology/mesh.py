"""What devices of a node reach among themselves where cables join them directly, without a switch.

    DGX-1, NVLinks of one quad        group {0, 1}: one cable
    0 ── 1     0-1, 0-2, 1-3: one     group {0, 3}: two cables
    │╲╳╱│      0-3, 1-2, 2-3: two     group {0, 1, 2, 3}: four rings, as many as 0 has links
    2 ══ 3                            group {0, 5}: none, PCI Express

Source: NCCL lays as many rings over NVLinks as these carry (src/graph/search.cc). Its topology has
a communicator's devices alone, so that messages pass one of these at most (PATH_NVB, paths.cc).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, islice, pairwise, permutations

from parsim.cluster.hardware import Cable, System
from parsim.cluster.topology.node_cables import MESHES, node_cables
from parsim.cluster.topology.relays import relayed

Widths = Mapping[tuple[int, int], float]
"""Bytes/s each way between two devices, the lower one first; pairs without a cable are missing."""
_TRIES = 2_000
_BRANCHES = 4
"""Rings that are tried at a step, and steps after which the first that fits is taken."""


def node_mesh(system: System) -> tuple[Cable, ...]:
    """Cables of a node that has direct NVLinks between devices; none of any other node."""
    if not system.intra.meshed and not system.topology:
        return ()
    known = system.intra.fabric == "full-mesh" or system.devices_per_node in MESHES
    if not system.topology and not known:
        return ()
    return _direct(system)


@lru_cache(maxsize=256)
def _direct(system: System) -> tuple[Cable, ...]:
    cables = node_cables(system)
    return cables if direct_pairs(cables) else ()


def direct_pairs(cables: Iterable[Cable]) -> dict[tuple[int, int], float]:
    """Rates that NCCL reaches on direct NVLinks."""
    rates: dict[tuple[int, int], float] = {}
    for cable in cables:
        kinds = [end.partition(":") for end in (cable.source, cable.target)]
        if cable.link_class == "nvlink" and all(kind == "gpu" for kind, _, _ in kinds):
            low, high = sorted(int(number) for _, _, number in kinds)
            rates[low, high] = cable.bandwidth * cable.efficiency
    return rates


def all_devices(cables: Iterable[Cable]) -> tuple[int, ...]:
    """Devices of the node, used by the job or not."""
    ends = {end for cable in cables for end in (cable.source, cable.target)}
    return tuple(sorted(int(end.removeprefix("gpu:")) for end in ends if end.startswith("gpu:")))


@dataclass(frozen=True, slots=True)
class GroupRates:
    """Bytes/s of a device in a group: of a ring's all lanes, and of an all-to-all to all others."""

    ring: float
    pairs: float


@lru_cache(maxsize=65536)
def group_rates(cables: tuple[Cable, ...], members: tuple[int, ...]) -> GroupRates:
    """What a device sends in a group of two or more devices of a node.

    ring: the bandwidth of the best set of edge-disjoint rings; one ring through the hosts where
    NVLinks close none. pairs: (m - 1) times what each pair gets while all send.
    """
    links = {pair: rate for pair, rate in direct_pairs(cables).items() if set(pair) <= set(members)}
    ring = ring_rate(links, members)
    if not ring:
        flows = zip(members, (*members[1:], members[0]), strict=True)
        ring = relayed(cables, direct_pairs(cables), list(flows))
    return GroupRates(ring, (len(members) - 1.0) * _each_pair(cables, links, members))


def has_ring(cables: tuple[Cable, ...], members: tuple[int, ...]) -> bool:
    """Whether direct NVLinks alone close a ring through all members."""
    return ring_rate(direct_pairs(cables), members) > 0.0


def ring_rate(links: Widths, members: tuple[int, ...]) -> float:
    """Bandwidth of edge-disjoint rings through all members, bytes/s; 0 where there is none.

    Of two devices the cable between them; of pairs that are all alike all cables, because by
    symmetry all rings share them evenly. Else rings of half the narrowest cable are laid one by
    one, in both directions each.
    """
    inner = {pair: links[pair] for pair in combinations(sorted(members), 2) if pair in links}
    whole = len(members) * (len(members) - 1) // 2
    if not inner:
        return 0.0
    narrow = min(inner.values())
    if len(inner) == whole and max(inner.values()) <= narrow * (1.0 + 1e-9):
        return narrow * (len(members) - 1.0)
    if len(members) == 2:
        return narrow
    lanes = {pair: int(2.0 * rate / narrow + 1e-6) for pair, rate in inner.items()}
    return narrow * _laid(lanes, members, iter(range(_TRIES)))


def _laid(lanes: dict[tuple[int, int], int], members: tuple[int, ...], tries: Iterator[int]) -> int:
    """The most rings that lanes hold side by side."""
    degrees = [sum(n for pair, n in lanes.items() if member in pair) for member in members]
    bound, best = min(degrees) // 2, 0
    branches = _BRANCHES if next(tries, None) is not None else 1
    for ring in islice(_rings(lanes, members[:1], len(members)) if bound else (), branches):
        less = dict(lanes)
        for pair in _edges(ring):
            less[pair] -= 1
        best = max(best, 1 + _laid(less, members, tries))
        if best == bound:
            break
    return best


def _edges(ring: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    for first, second in zip(ring, (*ring[1:], ring[0]), strict=True):
        yield min(first, second), max(first, second)


def _rings(
    lanes: Mapping[tuple[int, int], int], path: tuple[int, ...], size: int
) -> Iterator[tuple[int, ...]]:
    """Rings that begin with a path, those over free lanes first."""
    near = [
        (-lanes[pair], sum(pair) - path[-1]) for pair in lanes if path[-1] in pair and lanes[pair]
    ]
    if len(path) == size:
        if path[0] in [number for _, number in near]:
            yield path
        return
    for _, number in sorted(near):
        if number not in path:
            yield from _rings(lanes, (*path, number), size)


def _each_pair(cables: tuple[Cable, ...], links: Widths, members: tuple[int, ...]) -> float:
    """Bytes/s of every pair while all pairs send: by the fullest link, those far shared alike."""
    load: dict[tuple[int, int], float] = {}
    hosted: list[tuple[int, int]] = []
    partners = _partners(links)
    for first, last in permutations(members, 2):
        ways = _ways(partners, first, last)
        hosted += [] if ways else [(first, last)]
        for way in ways:
            for hop in pairwise(way):
                load[hop] = load.get(hop, 0.0) + 1.0 / len(ways)
    slowest = max((units / _width(links, *hop) for hop, units in load.items()), default=0.0)
    near = 1.0 / slowest if slowest else float("inf")
    return min(near, relayed(cables, direct_pairs(cables), hosted)) if hosted else near


def _width(links: Widths, first: int, last: int) -> float:
    return links.get((min(first, last), max(first, last)), 0.0)


def _partners(links: Widths) -> dict[int, dict[int, float]]:
    """Find, for each device with a cable, the widths to those at the other ends."""
    partners: dict[int, dict[int, float]] = {}
    for (low, high), width in links.items():
        partners.setdefault(low, {})[high] = width
        partners.setdefault(high, {})[low] = width
    return partners


def _ways(
    partners: Mapping[int, Mapping[int, float]], first: int, last: int
) -> list[tuple[int, ...]]:
    """The direct cable, or else the widest ways through one other device."""
    near, far = partners.get(first, {}), partners.get(last, {})
    if last in near:
        return [(first, last)]
    over = {middle: min(near[middle], far[middle]) for middle in sorted(near) if middle in far}
    widest = max(over.values(), default=0.0)
    return [(first, middle, last) for middle, width in over.items() if width == widest]


@lru_cache(maxsize=65536)
def pair_rate(
    cables: tuple[Cable, ...], first: int, last: int, members: tuple[int, ...] = ()
) -> float:
    """Bytes/s of one message between two devices, in a communicator that also has `members`."""
    inside = {first, last, *members}
    links = {pair: width for pair, width in direct_pairs(cables).items() if inside.issuperset(pair)}
    ways = _ways(_partners(links), first, last)
    if ways:
        return min(_width(links, *hop) for hop in pairwise(ways[0]))
    return relayed(cables, direct_pairs(cables), [(first, last)])
