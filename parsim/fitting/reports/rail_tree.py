"""Static flows over a rail-optimised fat tree, for the comparison with SimGrid.

Needs nothing but Python, because SimGrid's environment has neither numpy nor parsim.
"""

from __future__ import annotations

from random import Random

NODES, DEVICES, NODES_PER_LEAF, SPINES = 32, 8, 8, 4
DEVICE_RATE, SPINE_RATE = 50e9, 37e9
"""Bytes/s of an interface, and of each link between a leaf and a spine (oversubscribed 2.7)."""


CASES = {64: 1, 256: 2, 1024: 3}
"""Number of flows, and the seed of their ends."""


def capacities() -> list[float]:
    """Links in this order: out of each device, into each, leaf to spine, spine to leaf."""
    ends = NODES * DEVICES
    uplinks = NODES // NODES_PER_LEAF * DEVICES * SPINES
    return [DEVICE_RATE] * (2 * ends) + [SPINE_RATE] * (2 * uplinks)


def paths(count: int, seed: int) -> list[list[int]]:
    """Links of `count` flows between random devices; spines are chosen at random."""
    random, ends = Random(seed), NODES * DEVICES
    uplinks = NODES // NODES_PER_LEAF * DEVICES * SPINES
    listed = []
    for _ in range(count):
        source, target = random.sample(range(ends), 2)
        path = [source]
        if _leaf(source) != _leaf(target):
            spine = random.randrange(SPINES)
            path.append(2 * ends + _leaf(source) * SPINES + spine)
            path.append(2 * ends + uplinks + _leaf(target) * SPINES + spine)
        listed.append([*path, ends + target])
    return listed


def _leaf(device: int) -> int:
    """The leaf switch of a device's rail in its group of nodes."""
    node, rail = divmod(device, DEVICES)
    return node // NODES_PER_LEAF * DEVICES + rail
