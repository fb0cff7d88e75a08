"""Rows of measured collectives, one timed size each, and the system that they ran on.

Columns: those of `data/collectives/nccl_collective_curves.csv`; `flag` says what is wrong with a
row that is counted all the same. A blank cell means that the source does not say. A row that
cannot be predicted raises RowSkipped with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from parsim.cluster.device_names import alike_in_form, device_named
from parsim.cluster.hardware import System
from parsim.cluster.reader import load_catalog
from parsim.cost.collective.group_bandwidth import Groups
from parsim.cost.collective.mesh_links import members_share
from parsim.errors import CatalogError, TableError, shown
from parsim.validation.cells import Cells
from parsim.validation.tables import RowSkipped, check_columns, read_rows

REQUIRED = ("row_id", "gpu_type", "n_nodes", "gpus_per_node", "collective", "message_bytes")
TIMES = ("time_us", "busbw_gb_per_s", "algbw_gb_per_s")
PARAMETERS = ("row_id", "network", "collective", "parameters")
"""Columns of SimuMax's network fits, which hold another simulator's constants and no times."""

MOST_DEVICES = 10**6
"""No node or cluster of a row has more; a typing mistake has."""
CALL_OF_TORCH = 16e-6
"""What a torch call timed with events shows beyond nccl-tests (`make fit-collectives`)."""

SYSTEMS = {
    "a100_dgx": "dgx-a100",
    "h100_dgx": "dgx-h100",
    "a100_pairwise_nvlink": "a100-nvlink-pairs",
    "h100_pairwise_nvlink": "h100-nvlink-pairs",
    "aws p6-b200.48xlarge": "aws-p6-b200",
    "aws p5.48xlarge": "aws-p5",
    "gcp a4": "gcp-a4",
    "gcp a3 mega": "gcp-a3-mega",
    "gcp a3 high": "gcp-a3-high",
}
"""What sources call a system of the catalog."""
STANDARDS = {"EDR": 100.0, "HDR": 200.0, "NDR": 400.0, "XDR": 800.0}
"""Rate of an InfiniBand interface with four lanes, Gb/s."""
_COUNTED = re.compile(r"(\d+)\s*x\s*(\d+(?:\.\d+)?)\s*(Gb/s|Gbps|Gbit/s|GB/s)", re.IGNORECASE)
_NAMED = re.compile(rf"(\d+)\s*x\s*({'|'.join(STANDARDS)})\b", re.IGNORECASE)
TRAY = 8
"""No single machine holds more GPUs; a larger NVLink domain joins several."""
_KINDS = {
    "all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
    "broadcast": "broadcast", "reduce": "reduce", "all_to_all": "all_to_all",
    "alltoall": "all_to_all", "all2all": "all_to_all", "send_recv": "send_recv",
    "sendrecv": "send_recv",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCollective:
    """One timed size: what ran on which group of which system, and how long it took.

    `scope` is where it ran, as summaries group it; `overhead` what the tool adds to a call.
    """

    row_id: str
    kind: str
    algorithm: str
    size: float
    seconds: float
    system: System
    where: Groups
    scope: str
    overhead: float
    flag: str
    notes: tuple[str, ...]


def read_collectives(path: Path) -> list[dict[str, str]]:
    """Read a CSV of measured collectives as text cells.

    Raises:
        TableError: it cannot be read, has no rows, or lacks columns.
    """
    return read_rows(path, _check_header)


def _check_header(path: Path, header: list[str]) -> None:
    if set(PARAMETERS) <= set(header):
        return
    check_columns(path, header, REQUIRED)
    if not set(TIMES) & set(header):
        raise TableError(f"{path}: needs at least one of the columns {', '.join(TIMES)}")


def parse_collective(row: Mapping[str, str]) -> MeasuredCollective:
    """Check one row, find its system and place its group.

    Raises:
        RowSkipped: a needed figure is missing or garbage, or no system is like the row's.
    """
    if "parameters" in row:
        raise RowSkipped("holds constants of another simulator, no measured times")
    kind, cells = _kind(row), Cells(row)
    size = cells.rounded("message_bytes")
    if size is None:
        raise RowSkipped("message_bytes is not stated")
    nodes, used = (cells.need(name, most=MOST_DEVICES) for name in ("n_nodes", "gpus_per_node"))
    tool = row.get("tool", "").lower()
    system, notes = _system(row, nodes)
    where = _placed(system, nodes, used)
    if where.size[0] < 2:
        raise RowSkipped("a group of one GPU exchanges nothing")
    return MeasuredCollective(
        row_id=row["row_id"],
        kind=kind,
        algorithm=row.get("algorithm", "").lower().replace("-", "_"),
        size=size,
        seconds=_seconds(cells, kind, size, float(where.size[0])),
        system=system,
        where=where,
        scope=_scope(system, where),
        overhead=CALL_OF_TORCH if "torch" in tool and "vidur" not in tool else 0.0,
        flag=row.get("flag", "") or _unstated(row, nodes),
        notes=notes,
    )


def _kind(row: Mapping[str, str]) -> str:
    words = row["collective"].lower().split()  # "all_gather (inferred)"
    if not words or words[0] not in _KINDS:
        known = ", ".join(dict.fromkeys(_KINDS.values()))
        raise RowSkipped(f"collective='{shown(row['collective'])}' is unknown; allowed: {known}")
    return _KINDS[words[0]]


def _seconds(cells: Cells, kind: str, size: float, ranks: float) -> float:
    """The time, or what it was before it became a bandwidth; 0.00 is a rounded bandwidth."""
    time = cells.rounded("time_us")
    if time is not None:
        return time * 1e-6
    rate = cells.rounded("busbw_gb_per_s")
    if rate is not None:
        part = (ranks - 1.0) / ranks
        rooted = kind in ("broadcast", "reduce", "send_recv")
        factor = 1.0 if rooted else 2.0 * part if kind == "all_reduce" else part
        return size * factor / (rate * 1e9)
    rate = cells.rounded("algbw_gb_per_s")
    if rate is None:
        raise RowSkipped(f"none of {', '.join(TIMES)} is stated")
    return size / (rate * 1e9)


def _system(row: Mapping[str, str], nodes: int) -> tuple[System, tuple[str, ...]]:
    """The catalog's system, or the one that is usual for the GPU, with the row's interfaces."""
    catalog = load_catalog()
    named, gpu = row.get("system", ""), row["gpu_type"]
    known = SYSTEMS.get(named.lower(), named)
    notes: tuple[str, ...] = ()
    if known in catalog.systems:
        system = catalog.systems[known]
    else:
        system = _usual(gpu)
        notes = (f"system '{shown(named)}', GPU '{shown(gpu)}': taken as {system.id}",)
    rates = _interfaces(row.get("inter_node_interconnect", ""))
    if system.network is not None and rates is not None:
        network = replace(system.network, nics_per_node=rates[0], nic_bandwidth=rates[1])
        system = replace(system, network=network)
    elif nodes > 1 and notes and "nvlink" not in row.get("inter_node_interconnect", "").lower():
        notes = (*notes, f"network of {system.id}: the row states no rate")
    if nodes > 1 and system.network is None:
        raise RowSkipped(f"system {system.id} has no network for {nodes} nodes")
    return system, notes


def _usual(gpu: str) -> System:
    """The catalog's first system of a GPU; cards are joined by PCIe, if nothing else is stated."""
    if not gpu:
        raise RowSkipped("gpu_type is not stated")
    try:
        device = device_named(re.sub(r"\(.*?\)", "", gpu))
    except CatalogError:
        raise RowSkipped(f"GPU '{shown(gpu)}' is in no system of the catalog") from None
    for system in load_catalog().systems.values():
        joined = "pcie" not in device or system.intra.fabric == "pcie"
        if joined and alike_in_form(system.device.id, device):
            return system
    raise RowSkipped(f"GPU '{shown(gpu)}' is in no system of the catalog")


def _interfaces(text: str) -> tuple[int, float] | None:
    """Interfaces of a node and the rate of one, bytes/s: "8x 50 GB/s EFA v4", "4x HDR"."""
    if counted := _COUNTED.search(text):
        bits = counted[3].lower() != "gb/s" or counted[3].startswith("Gb")
        return int(counted[1]), float(counted[2]) * 1e9 / (8.0 if bits else 1.0)
    if named := _NAMED.search(text):
        return int(named[1]), STANDARDS[named[2].upper()] * 1e9 / 8.0
    return None


def _placed(system: System, nodes: int, used: int) -> Groups:
    """The group of all ranks; nodes of the row that share an NVLink domain are one node here."""
    ranks = nodes * used
    rack = system.devices_per_node > TRAY  # its trays are the row's nodes
    per_node = min(ranks if rack else used, system.devices_per_node)
    column = {"size": ranks, "per_node": per_node, "nodes": -(-ranks // per_node)}
    across = column["nodes"] > 1
    values = {name: np.array([float(value)]) for name, value in column.items()}
    ring, pairs = members_share(system, range(per_node))
    return Groups(
        **values,
        sharing=np.array([1.0 if across else 0.0]),
        leaves=np.array([False]),
        ring_share=np.array([ring]),
        pair_share=np.array([pairs]),
    )


def _scope(system: System, where: Groups) -> str:
    switched = system.intra.fabric == "nvswitch" or system.intra.meshed
    if where.nodes[0] == 1:
        return "NVLink domain" if switched else "PCIe"
    return "PCIe" if system.devices_per_node == 2 else "across nodes"


def _unstated(row: Mapping[str, str], nodes: int) -> str:
    unknown = "link type not stated" in row.get("note", "").lower()
    return "network not stated" if nodes > 1 and unknown else ""
