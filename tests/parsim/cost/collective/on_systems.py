"""Collectives of groups of ranks on systems of the catalog."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from parsim.cluster.hardware import System
from parsim.cluster.reader import load_catalog
from parsim.cost.collective.collectives import collective_time
from parsim.cost.collective.group_bandwidth import Groups, groups
from parsim.cost.collective.kinds import CollectiveKind

SYSTEMS = (
    *("dgx-a100", "dgx-h100", "hgx-h200", "dgx-1v", "a100-pcie-node", "dgx-b200"),
    *("gb200-nvl72", "gcp-a3-high", "a100-nvlink-pairs"),
)

KINDS: tuple[CollectiveKind, ...] = (
    *("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all"),
)


def system(name: str) -> System:
    return load_catalog().system(name)


def group(name: str, size: int, stride: int = 1, world: int | None = None) -> Groups:
    columns = [np.array([x]) for x in (size, stride, world or size * stride)]
    return groups(system(name), size=columns[0], stride=columns[1], world=columns[2])


def seconds(name: str, kind: CollectiveKind, size: float, ranks: int, stride: int = 1) -> float:
    return float(collective_time(system(name), kind, size, group(name, ranks, stride))[0])


sizes = st.floats(min_value=1.0, max_value=1e11)
names = st.sampled_from(SYSTEMS)
