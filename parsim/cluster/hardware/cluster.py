"""Clusters: nodes of one system or of several, and which device each rank runs on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from parsim.cluster.hardware.device import Device
from parsim.cluster.hardware.system import System
from parsim.errors import CatalogError

MOST_DEVICES = 1_000_000
"""Devices of a cluster: ten times the largest built."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """Equal nodes of a mixed cluster, by the name that scenario, plan and results call them."""

    name: str
    system: System
    num_nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """`num_nodes` nodes of one system, or of those of `groups` (`cluster/groups.py`).

    `placement` is the device of each rank; None: rank order. `failed` are parts (nic:0.3) and
    cables (leaf:0.1->spine:0) of the graph that are out of order, so that routes avoid them. Of a
    mixed cluster `system` is the first group's, whose switches all nodes are on; whoever prices
    with it asks `Job.system`, which refuses a mixed one.
    """

    system: System
    num_nodes: int
    placement: tuple[int, ...] | None = None
    failed: tuple[str, ...] = ()
    groups: tuple[NodeGroup, ...] = ()

    def __repr__(self) -> str:
        return f"<Cluster {self.words}: {self.num_devices} devices>"

    def __post_init__(self) -> None:
        if self.num_nodes < 1:
            raise CatalogError(f"nodes={self.num_nodes} must be at least 1")
        if self.num_devices > MOST_DEVICES:
            raise CatalogError(
                f"nodes={self.num_nodes} have {self.num_devices} devices; allowed: at most "
                f"{MOST_DEVICES}"
            )
        if self.num_nodes > 1 and self.system.network is None:
            raise CatalogError(
                f"system {self.system.id} has no network, so nodes={self.num_nodes} cannot be "
                f"joined; use nodes=1 or a system with a network"
            )
        if self.placement is not None:
            check_placement(self.placement, self.num_devices)

    @property
    def num_devices(self) -> int:
        """Devices in all nodes."""
        if self.groups:
            return sum(group.num_nodes * group.system.devices_per_node for group in self.groups)
        return self.num_nodes * self.system.devices_per_node

    @property
    def systems(self) -> tuple[System, ...]:
        """The kinds of node: one of each group, or the only one."""
        return tuple(group.system for group in self.groups) or (self.system,)

    @property
    def devices(self) -> tuple[Device, ...]:
        """The device of each kind of node."""
        return tuple(system.device for system in self.systems)

    @property
    def words(self) -> str:
        """Which nodes: 2 x dgx-h100, or 2 x dgx-h100 (fast) + 2 x dgx-a100 (slow)."""
        named = (f"{group.num_nodes} x {group.system.id} ({group.name})" for group in self.groups)
        return " + ".join(named) or f"{self.num_nodes} x {self.system.id}"

    @property
    def device(self) -> Device:
        """The device kind of every node."""
        return self.system.device


def check_placement(placement: Sequence[int], devices: int) -> None:
    """Refuse a map of ranks to devices with a device out of range or twice.

    Raises:
        CatalogError: the first rank whose device is wrong.
    """
    first: dict[int, int] = {}
    for rank, device in enumerate(placement):
        if not 0 <= device < devices:
            raise CatalogError(
                f"puts rank {rank} on device {device}, which is out of range; "
                f"allowed: 0 to {devices - 1}"
            )
        if device in first:
            raise CatalogError(
                f"puts ranks {first[device]} and {rank} on device {device}; "
                f"each device takes one rank"
            )
        first[device] = rank
    if len(placement) != devices:
        raise CatalogError(f"places {len(placement)} ranks; the cluster has {devices} devices")
