"""Records of hardware: a device, a system of such devices, a cluster of such nodes.

Rates are per device or per link and one direction: bytes/s, FLOP/s. Vendors quote NVLink in both
directions and networks in bits; the catalog's readers convert. An efficiency is the share of the
quoted rate that a long-running kernel or transfer reaches; every number's origin is in `sources`.
"""

from parsim.cluster.hardware.cluster import Cluster, NodeGroup, check_placement
from parsim.cluster.hardware.device import (
    CONVOLUTION,
    QUANTIZED_ATTENTION,
    Device,
    Measured,
    Tiles,
)
from parsim.cluster.hardware.system import (
    Cable,
    Curve,
    Fabric,
    Generation,
    IntraNode,
    Library,
    LinkClass,
    Network,
    NetworkFabric,
    System,
    Tuner,
)

__all__ = [
    "CONVOLUTION",
    "QUANTIZED_ATTENTION",
    "Cable",
    "Cluster",
    "Curve",
    "Device",
    "Fabric",
    "Generation",
    "IntraNode",
    "Library",
    "LinkClass",
    "Measured",
    "Network",
    "NetworkFabric",
    "NodeGroup",
    "System",
    "Tiles",
    "Tuner",
    "check_placement",
]
