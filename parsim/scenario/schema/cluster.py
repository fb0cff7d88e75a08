"""Keys of the cluster block, of equal nodes or of groups of them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from parsim.scenario.schema.values import (
    UNSET,
    Block,
    Count,
    Duration,
    FabricName,
    Flag,
    GenerationName,
    NetworkFabricName,
    Rank,
    Rate,
    Ratio,
    Share,
    Text,
    like,
)


class IntraBlock(Block):
    """Overrides of the links inside a node."""

    fabric: FabricName = UNSET
    bandwidth: Rate = UNSET
    latency: Duration = UNSET
    efficiency: Share = UNSET
    nvls: Flag = UNSET
    generation: GenerationName = UNSET
    c2c_bandwidth: Rate = UNSET
    torus: Count = UNSET


class NetworkBlock(Block):
    """Overrides of the network between nodes."""

    nics_per_node: Count = UNSET
    nic_bandwidth: Annotated[float, like("bandwidth", "400Gb/s")] = UNSET
    latency: Duration = UNSET
    efficiency: Share = UNSET
    oversubscription: Ratio = UNSET
    nodes_per_leaf: Count = UNSET
    sharp: Flag = UNSET
    fabric: NetworkFabricName = UNSET
    rails: Count = UNSET
    spines: Count = UNSET


class ClusterBlock(Block):
    """A system of the catalog, how many nodes of it, and what differs.

    `placement` is the device of each rank, `failed` are parts and cables out of order; both show
    where links are shared, in the graph of `parsim catalog show`.
    """

    system: Text
    nodes: Count
    device: Text = UNSET
    devices_per_node: Count = UNSET
    catalog: tuple[Text, ...] = ()
    placement: tuple[Rank, ...] = UNSET
    failed: tuple[Text, ...] = ()
    intra: IntraBlock = IntraBlock()
    network: NetworkBlock = NetworkBlock()


class GroupBlock(Block):
    """Equal nodes of a mixed cluster: the fields of a cluster of one system."""

    system: Text
    nodes: Count
    device: Text = UNSET
    devices_per_node: Count = UNSET
    intra: IntraBlock = IntraBlock()
    network: NetworkBlock = NetworkBlock()


class MixedBlock(Block):
    """A cluster whose nodes differ: `groups` by the names that plan and results call them.

    Ranks fill the groups' nodes in this order, or in that of `plan.node_order`.
    """

    groups: Annotated[dict[Text, GroupBlock], Field(min_length=1)]
    catalog: tuple[Text, ...] = ()
    placement: tuple[Rank, ...] = UNSET
    failed: tuple[Text, ...] = ()
