"""Reads topologies that machines print of themselves and makes catalog entries of them.

    nvidia-smi topo -m      smi.py          which devices and interfaces share what; no speeds
                            smi_table.py    its table, read and checked
    NCCL_TOPO_DUMP_FILE     nccl.py         PCIe tree with speeds, NVLinks, interfaces
    NCCL_GRAPH_DUMP_FILE    nccl_graph.py   NCCL's channels and their speeds: a calibration
    lstopo --of xml         hwloc.py        PCIe tree with speeds; no NVLinks
    ASTRA-sim network yml   astra.py        dimensions with bandwidth and latency

`import_topology` tells them apart and returns what imported.py writes as YAML.
"""

from __future__ import annotations

from parsim.cluster.importers.detect import import_topology
from parsim.cluster.importers.imported import ImportedSystem, catalog_text

__all__ = ("ImportedSystem", "catalog_text", "import_topology")
