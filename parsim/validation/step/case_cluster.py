"""The cluster that a measured run ran on: the catalog's system, with the row's figures."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from parsim.cluster.device_names import alike_in_form, variant_named
from parsim.cluster.hardware import Cluster, System
from parsim.cluster.reader import Catalog
from parsim.errors import CatalogError, shown
from parsim.validation.tables import RowSkipped

RACK, RACK_USED = 72, 64
"""Devices of an NVL72 rack, and those that jobs of 128, 256, ... devices take of each.

Source: performance recipes of Megatron-Bridge, NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN=64 beside
NVLINK_DOMAIN_SIZE=72."""


class Placed(Protocol):
    """A measured run as far as its devices go; `internode_gbit` None where it is not stated."""

    @property
    def system(self) -> str:
        """A system of the catalog, or another's name."""
        ...

    @property
    def gpu_type(self) -> str:
        """A device of the catalog, or a variant of one."""
        ...

    @property
    def gpus_per_node(self) -> int:
        """Devices of a node, as the row counts nodes."""
        ...

    @property
    def n_gpus(self) -> int:
        """Devices of the run."""
        ...

    @property
    def internode_gbit(self) -> float | None:
        """Gb/s of a node's network."""
        ...


def case_cluster(run: Placed, catalog: Catalog) -> tuple[Cluster, tuple[str, ...]]:
    """The catalog's system, or one made from gpu_type, gpus_per_node and the network's rate."""
    device, notes = _device(run.gpu_type, catalog)
    if run.system in catalog.systems:
        system = catalog.systems[run.system]
    else:
        system = replace(_system_with(device, catalog), stands_for=run.system)
        notes = (*notes, f"unknown system '{shown(run.system)}': built from {system.id}")
    system = _sized(replace(system, device=catalog.devices[device]), run)
    if system.devices_per_node == RACK and run.n_gpus % RACK and run.n_gpus % RACK_USED == 0:
        system = _used(system, RACK_USED)
        notes = (*notes, f"jobs of a power of two take {RACK_USED} of a rack's {RACK} devices")
    nodes, rest = divmod(run.n_gpus, system.devices_per_node)
    if nodes == 0:
        return Cluster(system=system.of_devices(run.n_gpus), num_nodes=1), notes
    if rest:
        raise RowSkipped(f"n_gpus={run.n_gpus} does not fill nodes of {system.devices_per_node}")
    return Cluster(system=system, num_nodes=nodes), notes


def _used(system: System, devices: int) -> System:
    """A node of which a job takes some devices, each with its interfaces."""
    if system.network is not None:
        share = devices / system.devices_per_node
        nics = max(round(system.network.nics_per_node * share), 1)
        system = replace(system, network=replace(system.network, nics_per_node=nics))
    return replace(system, devices_per_node=devices)


def _device(gpu_type: str, catalog: Catalog) -> tuple[str, tuple[str, ...]]:
    """The catalog's device, or the nearest variant: same chip and form, or same chip."""
    if gpu_type in catalog.devices:
        return gpu_type, ()
    try:
        known = variant_named(gpu_type)
    except CatalogError as error:
        raise RowSkipped(f"gpu_type: {error}") from None
    return known, (f"unknown device '{shown(gpu_type)}': taken as {known}",)


def _system_with(device: str, catalog: Catalog) -> System:
    """The catalog's first system that is made of this chip; else a node of PCIe cards."""
    for system in catalog.systems.values():
        if alike_in_form(system.device.id, device):
            return system
    return catalog.systems["a100-pcie-node"]


def _sized(system: System, run: Placed) -> System:
    """The system with the row's devices a node, and its rate between nodes.

    The rate is that of a node as the row counts nodes. An NVL72 rack is one NVLink domain whatever
    its trays hold: a row with 4 devices a node counts 18 nodes a rack, each with the stated rate.
    """
    if system.devices_per_node < RACK and run.gpus_per_node != system.devices_per_node:
        system = system.of_devices(run.gpus_per_node)
    if run.internode_gbit is not None and system.network is not None:
        row_nodes = system.devices_per_node / run.gpus_per_node
        rate = run.internode_gbit * 1e9 / 8.0 * row_nodes
        network = replace(system.network, nic_bandwidth=rate / system.network.nics_per_node)
        system = replace(system, network=network)
    return system
