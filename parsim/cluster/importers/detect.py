"""Which format a file has, by its content, and its importer."""

from __future__ import annotations

from pathlib import Path

from parsim.cluster.importers.astra import read_astra
from parsim.cluster.importers.hwloc import read_hwloc
from parsim.cluster.importers.imported import ImportedSystem
from parsim.cluster.importers.markup import read_markup
from parsim.cluster.importers.nccl import read_nccl
from parsim.cluster.importers.nccl_graph import read_rings
from parsim.cluster.importers.smi import read_table
from parsim.cluster.importers.smi_table import looks_like_table
from parsim.errors import ScenarioError
from parsim.files import read_text

_MARKUP = {"system": read_nccl, "graphs": read_rings, "topology": read_hwloc}

FORMATS = (
    "text of `nvidia-smi topo -m`, XML of NCCL_TOPO_DUMP_FILE or NCCL_GRAPH_DUMP_FILE, "
    "XML of hwloc (lstopo --of xml), or a network yml of ASTRA-sim"
)


def import_topology(path: Path, device: str | None = None) -> ImportedSystem:
    """Read a topology in whichever known form it is.

    Args:
        path: the file.
        device: id of the devices in the catalog; None: what the file says.

    Raises:
        ScenarioError: the file cannot be read, is in no known form, or is wrong; the message
            starts with file:line:column.
        CatalogError: the catalog has no such device, or one is needed.
    """
    text, file = read_text(path, error=ScenarioError), str(path)
    if text.lstrip("\ufeff \t\r\n").startswith("<"):
        root = read_markup(text, file)
        if root.name in _MARKUP:
            return _MARKUP[root.name](root, file, device)
        allowed = "system and graphs of NCCL, topology of hwloc"
        raise root.error(file, f"<{root.name}> is no known topology; allowed: {allowed}")
    if looks_like_table(text):
        return read_table(text, file, device)
    if "npus_count" in text:
        return read_astra(text, file, device)
    raise ScenarioError(f"{file}:1:1 is no known topology; allowed: {FORMATS}")
