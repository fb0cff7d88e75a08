"""Kinds of collectives, their algorithms and bytes, and constants of NCCL systems."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from parsim.arrays import Array
from parsim.cluster.hardware import System
from parsim.units import KIB

CollectiveKind = Literal[
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all"
]
Algorithm = Literal["ring", "tree", "nvls", "nvls_tree", "collnet", "pat", "p2p"]


def wire_share(kind: CollectiveKind, ranks: Array) -> Array:
    """Bytes that every rank sends, over S: nccl-tests' busbw over algbw."""
    part = (ranks - 1.0) / np.maximum(ranks, 1.0)
    if kind in ("broadcast", "reduce"):
        return np.ones_like(ranks)
    return np.asarray(2.0 * part if kind == "all_reduce" else part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """Constants of NCCL systems, by link generation where links decide.

    `call` is what a call of two ranks takes inside a node, `hop` the latency of a ring's step (LL),
    `across` what each doubling of the node count adds to a message of `full` bytes and more on a
    network of `usual` latency, `across_small` what it adds to an empty one, and `crossings` how
    many times both add what the network has beyond the usual, seconds. `ring_hop` and `ring_across`
    are the steps, inside and between nodes, of a ring that nothing replaces, each for pieces of no
    size (LL128) and of `ring_full` bytes and more (Simple). Steps inside a node are those of links
    whose latency is that of `links` of their kind, see `stepped`. `ramp` is the
    square-root term of an all-reduce of 8 ranks at 1 MiB, `ramp_across` its factor with several
    nodes. `nvls` is the bandwidth of an NVLS all-reduce over the ring's, `nvls_ranks` from how many
    GPUs on NCCL uses it, `nvls_nodes` what two or more nodes leave of it. `collnet`: SHARP over the
    ring's in-node. `idle` is the part of a ring's step in which a rank sends nothing, once per
    all-reduce of a chunk (`modelled.py`), by generation and for a bridged pair. `message` and
    `message_across` are what a point-to-point message takes beyond its hop.
    """

    call: float = 18.7e-6
    hop: float = 0.6e-6
    across: float = 60e-6
    across_small: float = 15e-6
    full: float = 64.0 * KIB
    ring_hop: tuple[float, float] = (1.9e-6, 3.4e-6)
    ring_across: tuple[float, float] = (4.0e-6, 14.0e-6)
    ring_full: float = 16.0 * KIB
    usual: float = 2e-6
    links: Mapping[str, float] = field(default_factory=lambda: {"nvlink": 3.4e-6, "pcie": 5.7e-6})
    crossings: float = 4.0
    ramp: Mapping[str, float] = field(
        default_factory=lambda: {
            "volta": 5e-6,
            "ampere": 25.1e-6,
            "hopper": 6.02e-6,
            "blackwell": 10.1e-6,
            "xgmi": 8e-6,
            "ici": 2e-6,
            "pcie": 2e-6,
        }
    )
    ramp_across: float = 1.3
    nvls: Mapping[str, float] = field(default_factory=lambda: {"hopper": 0.735, "blackwell": 0.708})
    nvls_ranks: Mapping[str, int] = field(default_factory=lambda: {"hopper": 5, "blackwell": 6})
    nvls_nodes: float = 0.94
    idle: Mapping[str, float] = field(default_factory=lambda: {"ampere": 0.306, "bridge": 0.213})
    collnet: float = 0.8
    tree: float = 0.92
    all_to_all: float = 0.89
    message: float = 5e-6
    message_across: float = 16e-6


CONSTANTS = Constants()
"""Fitted by `make fit-collectives` (call, ramp, nvls); hop: NCCL's LL step over NVLink;
ring_hop, ring_across: its LL128 and Simple steps over NVLink and network (nccl.yaml);
across_small, full, ring_full: logs of Polaris, 8 to 2,160 A100 (argonne-lcf/alcf-nccl-tests, commit
385be33): 1 KiB takes 28, 50 to 66 and 134 us on 2, 8 and 256 nodes and 64 KiB 79, 156 to 210 and
416, each doubling 11 to 19 and 40 to 60; a gather's step is 7.5 to 8 us while a rank's piece is
below 8 KiB and 20 to 30 us from 16 KiB on; usual: InfiniBand; links: NCCL's Simple hops over NVLink
and PCI Express, which every NCCL system of the catalog has that shares links among devices;
crossings: NCCL's tree goes up and down, and its Simple protocol counts the latency of the interface
twice a hop, for the flush (src/graph/tuning.cc); nvls_ranks:
what NCCL took on H200 and B200; collnet: 110 GB/s on DGX A100 (nccl issue 320); tree: NCCL's 0.92
of a ring's channels; all_to_all: SimuMax B200, 0.597 of the link where all-gather has 0.674;
message: send/recv below 1 MiB takes 5 to 9 us on H100, 8 to 17 on A100, 17 to 20 between nodes of
H100 (vidur). Volta as Ampere; pcie: pairs of A100 and H100 cards (vidur), where it is hardly
seen."""


def usual_hop(system: System, constants: Constants = CONSTANTS) -> float:
    """Latency of a hop inside a node on links of the system's kind, seconds."""
    return constants.links["pcie" if generation(system) == "pcie" else "nvlink"]


def stepped(step: float, latency: float, usual: float) -> float:
    """A ring's step of so many seconds at the `usual` latency, at another one.

    max(latency - usual, 0) more, or in proportion less: a fast protocol's step is a part of a hop.
    """
    return step * min(latency / usual, 1.0) + max(latency - usual, 0.0)


def generation(system: System) -> str:
    """Whose constants the links inside a node take: as written, else by fabric and NVLS."""
    if system.intra.fabric in ("pcie", "shared-memory"):
        return "pcie"
    return system.intra.generation or ("hopper" if system.intra.nvls else "ampere")
