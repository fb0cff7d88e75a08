"""The measured shape of a collective: seconds = latency + S / bandwidth + ramp sqrt(S / 1 MiB).

Across nodes the latency has two levels, because NCCL sends small pieces with protocols whose steps
are short: a lower one for small S, and `slow` more from `full` bytes on.

NCCL's own model of latency and bandwidth lacks the ramp: chunk pipelines fill and further channels
open as S grows. With it, three figures per (system, ranks, collective) reach 4 % (median, from
1 MiB on). A system's measured `curves` give the three for their group shape; everywhere else they
follow from links and a few constants of the link generation, which `make fit-collectives` draws
from public curves and reports/collectives.md shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from parsim.arrays import Array, Flags
from parsim.cluster.hardware import Curve, System
from parsim.cost.collective.group_bandwidth import GLOO, Groups, gloo_bandwidth, inter_bandwidth

CollectiveKind = Literal[
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all"
]
Algorithm = Literal["ring", "tree", "nvls", "nvls_tree", "collnet", "pat", "p2p"]

KIB, MIB = 2.0**10, 2.0**20
ONE = np.ones(1)
RANKS = 8.0
"""The ramp constants are those of 8 ranks in a node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """Constants of NCCL systems, by link generation where links decide.

    `call` is what a call of two ranks takes inside a node, `hop` the latency of a ring's step (LL),
    `across` what each doubling of the node count adds to a message of `full` bytes and more on a
    network of `usual` latency, `across_small` what it adds to an empty one, and `crossings` how
    many times both add what the network has beyond the usual, seconds. `ring_hop` and `ring_across`
    are the steps, inside and between nodes, of a ring that nothing replaces, each for pieces of no
    size (LL128) and of `ring_full` bytes and more (Simple). `ramp` is the
    square-root term of an all-reduce of 8 ranks at 1 MiB, `ramp_across` its factor with several
    nodes. `nvls` is the bandwidth of an NVLS all-reduce over the ring's, `nvls_ranks` from how many
    GPUs on NCCL uses it, `nvls_nodes` what two or more nodes leave of it. `collnet`: SHARP over the
    ring's in-node. `idle` is the part of a ring's step in which a rank sends nothing, once per
    all-reduce of a chunk (`_busy`), by generation and for a bridged pair. `message` and
    `message_across` are what a point-to-point message takes beyond its hop.
    """

    call: float = 18.7e-6
    hop: float = 0.6e-6
    across: float = 60e-6
    across_small: float = 15e-6
    full: float = 64 * KIB
    ring_hop: tuple[float, float] = (1.9e-6, 3.4e-6)
    ring_across: tuple[float, float] = (4.0e-6, 14.0e-6)
    ring_full: float = 16 * KIB
    usual: float = 2e-6
    crossings: float = 4.0
    ramp: Mapping[str, float] = field(
        default_factory=lambda: {
            "volta": 5e-6,
            "ampere": 25.1e-6,
            "hopper": 6.02e-6,
            "blackwell": 10.1e-6,
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
below 8 KiB and 20 to 30 us from 16 KiB on; usual: InfiniBand;
crossings: NCCL's tree goes up and down, and its Simple protocol counts the latency of the interface
twice a hop, for the flush (src/graph/tuning.cc); nvls_ranks:
what NCCL took on H200 and B200; collnet: 110 GB/s on DGX A100 (nccl issue 320); tree: NCCL's 0.92
of a ring's channels; all_to_all: SimuMax B200, 0.597 of the link where all-gather has 0.674;
message: send/recv below 1 MiB takes 5 to 9 us on H100, 8 to 17 on A100, 17 to 20 between nodes of
H100 (vidur). Volta as Ampere; pcie: pairs of A100 and H100 cards (vidur), where it is hardly
seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Latency (s), bandwidth (bytes/s of S) and ramp (s at 1 MiB), (B,).

    `slow` (s, B) is the latency that messages of `full` bytes (B,) and more have beyond that of
    empty ones, those between their share of it.
    """

    latency: Array
    bandwidth: Array
    ramp: Array
    slow: Array | float = 0.0
    full: Array | float = 1.0

    def waiting(self, size: Array | float) -> Array:
        """Latency of a message of S bytes."""
        size = np.asarray(size, dtype=np.float64)
        return np.asarray(self.latency + self.slow * np.minimum(size / self.full, 1.0))

    def seconds(self, size: Array | float) -> Array:
        """Time of S bytes."""
        size = np.asarray(size, dtype=np.float64)
        return np.asarray(
            self.waiting(size) + size / self.bandwidth + self.ramp * np.sqrt(size / MIB)
        )


def generation(system: System) -> str:
    """Whose constants the links inside a node take: as written, else by fabric and NVLS."""
    if system.intra.fabric in ("pcie", "shared-memory"):
        return "pcie"
    return system.intra.generation or ("hopper" if system.intra.nvls else "ampere")


def wire_share(kind: CollectiveKind, ranks: Array) -> Array:
    """Bytes that every rank sends, over S: nccl-tests' busbw over algbw."""
    part = (ranks - 1.0) / np.maximum(ranks, 1.0)
    if kind in ("broadcast", "reduce"):
        return np.ones_like(ranks)
    return np.asarray(2.0 * part if kind == "all_reduce" else part)


def shape(
    system: System, kind: CollectiveKind, where: Groups, constants: Constants = CONSTANTS
) -> Shape:
    """Measured shape where the system has a curve for it, else the one from links and constants.

    An exact curve holds for its ranks on its nodes. Inside a node, other rank counts take the
    nearest curve (by ratio), each of its three figures scaled as links and constants scale; one
    that those do not have (gloo's latency and ramp) as it was measured.

    Source: reports/collectives.md.
    Leaves out: other traffic on the links, dips where NCCL changes protocol.
    """
    model = modelled(system, kind, where, constants)
    curves = [curve for curve in system.curves if curve.collective == kind]
    if not curves:
        return model
    latency, bandwidth, ramp = (x.copy() for x in (model.latency, model.bandwidth, model.ramp))
    slow = np.array(np.broadcast_to(model.slow, latency.shape))
    for index, curve in enumerate(curves):
        chosen = _takes(curves, index, where)
        if chosen.any():
            there = _modelled_where_measured(system, kind, curve, constants)
            known = there.waiting(np.inf)[0]  # curves are of large messages
            latency[chosen] = _scaled(latency[chosen], known, curve.latency)
            slow[chosen] = _scaled(slow[chosen], known, curve.latency) if known else 0.0
            bandwidth[chosen] *= curve.bandwidth / there.bandwidth[0]
            ramp[chosen] = _scaled(ramp[chosen], there.ramp[0], curve.ramp)
    return replace(model, latency=latency, bandwidth=bandwidth, ramp=ramp, slow=slow)


def _scaled(figure: Array, modelled_figure: float, measured_figure: float) -> Array:
    return (
        np.full(figure.shape, measured_figure)
        if modelled_figure == 0.0
        else figure * (measured_figure / modelled_figure)
    )


def measured(system: System, kind: CollectiveKind, where: Groups) -> Flags:
    """Which groups have exactly the shape of a measured curve, (B,)."""
    curves = [curve for curve in system.curves if curve.collective == kind]
    exact = np.zeros(where.size.shape, dtype=bool)
    for curve in curves:
        exact |= _exactly(curve, where)
    return exact


def _exactly(curve: Curve, where: Groups) -> Flags:
    alone = (where.sharing <= 1) & ~where.leaves
    return np.asarray((where.size == curve.ranks) & (where.nodes == curve.nodes) & alone)


def _takes(curves: list[Curve], index: int, where: Groups) -> Flags:
    curve = curves[index]
    if curve.nodes > 1:
        return _exactly(curve, where)
    apart = [
        np.abs(np.log(where.size / other.ranks)) if other.nodes == 1 else np.inf * where.size
        for other in curves
    ]
    return np.asarray((where.nodes == 1) & (np.argmin(np.stack(apart), axis=0) == index))


def _modelled_where_measured(
    system: System, kind: CollectiveKind, curve: Curve, constants: Constants
) -> Shape:
    """What links and constants give for a curve's own group at the link rates it was measured at.

    So a scenario that changes a rate changes the bandwidth in proportion.
    """
    intra = replace(system.intra, bandwidth=curve.link)
    network = system.network
    if network is not None and curve.node_bandwidth is not None:
        network = replace(network, nic_bandwidth=curve.node_bandwidth / network.nics_per_node)
    column = {
        "size": curve.ranks,
        "per_node": curve.ranks / curve.nodes,
        "nodes": curve.nodes,
        "sharing": 1,
    }
    where = Groups(
        **{name: np.array([float(value)]) for name, value in column.items()},
        leaves=np.array([False]),
    )
    return modelled(replace(system, intra=intra, network=network), kind, where, constants)


def modelled(
    system: System, kind: CollectiveKind, where: Groups, constants: Constants = CONSTANTS
) -> Shape:
    """The shape from links and constants alone, best algorithm of a large message.

    latency = call + hop steps + (across + crossings (network - usual)) log2(nodes), network the
    system's latency; steps = 2 (r - 1) of an all-reduce over r ranks in a node, half of that else.
    Gathers and reduce-scatters of n ranks on N nodes have no tree: at least call + (n - N) ring_hop
    + N ring_across, which leads from 16 nodes of 8 on; the second pair of steps from n pieces of
    `ring_full` bytes on. ramp = ramp of the generation sqrt(r / 8), half for collectives of n - 1
    steps. gloo has a bandwidth alone.
    """
    if system.library == GLOO:
        rates = gloo_bandwidth(system, kind, where)
        return Shape(latency=np.zeros_like(rates), bandwidth=rates, ramp=np.zeros_like(rates))
    steps = 2.0 if kind == "all_reduce" else 1.0
    small, large = (_latency(system, kind, where, constants, steps, way) for way in (0, 1))
    ring = kind in ("all_gather", "reduce_scatter")
    ramp = constants.ramp[generation(system)] * np.sqrt(where.per_node / RANKS) * steps / 2.0
    ramp = ramp * np.where(where.nodes > 1, constants.ramp_across, 1.0)
    best = np.max(np.stack(list(bandwidths(system, kind, where, constants).values())), axis=0)
    return Shape(
        latency=small,
        bandwidth=best,
        ramp=np.asarray(ramp),
        slow=large - small,
        full=constants.ring_full * where.size if ring else constants.full,
    )


def _latency(
    system: System,
    kind: CollectiveKind,
    where: Groups,
    constants: Constants,
    steps: float,
    large: int,
) -> Array:
    """Seconds of an empty message (0), or what a large one (1) takes beyond its bytes, (B,)."""
    network = system.network.latency if system.network else constants.usual
    each = (constants.across_small, constants.across)[large]
    doubling = each + constants.crossings * (network - constants.usual)
    latency = constants.call + constants.hop * steps * (where.per_node - 1.0)
    latency = latency + doubling * np.log2(np.maximum(where.nodes, 1.0))
    if kind in ("all_gather", "reduce_scatter"):
        latency = np.maximum(latency, _ring_latency(where, constants, large))
    return np.asarray(latency)


def _ring_latency(where: Groups, constants: Constants, large: int) -> Array:
    """Seconds in which the last piece goes all the way round; nothing inside a node."""
    inside = constants.ring_hop[large] * (where.size - where.nodes)
    steps = constants.call + inside + constants.ring_across[large] * where.nodes
    return np.asarray(np.where(where.nodes > 1, steps, 0.0))


def bandwidths(
    system: System, kind: CollectiveKind, where: Groups, constants: Constants = CONSTANTS
) -> dict[Algorithm, Array]:
    """Bandwidth (bytes/s of S) that each algorithm tends to; 0 where a group cannot use it.

    ring: min(link, interfaces) / wire share. tree: 0.92 / 2 of it, because a node inside one of two
    trees sends 2 S. nvls: constant in the rank count, because the switch reduces; joined by trees,
    S leaves each of two nodes, 2 S each of more. collnet: switches between nodes reduce.
    """
    link = system.intra.bandwidth * system.intra.efficiency
    out = np.where(where.nodes > 1, inter_bandwidth(system, where), np.inf)
    if kind == "all_to_all":
        every = np.where(
            where.nodes > 1, inter_bandwidth(system, replace(where, crossing=ONE)), np.inf
        )
        return {"p2p": _all_to_all(constants.all_to_all * link, every, where)}
    slowest = np.minimum(link, out)
    rates: dict[Algorithm, Array] = {"ring": slowest / wire_share(kind, np.maximum(where.size, 2))}
    if kind == "all_reduce":
        rates["ring"] = rates["ring"] * _busy(system, where, constants)
    if kind in ("all_gather", "reduce_scatter"):
        rates["pat"] = np.where((where.per_node == 1) & (where.nodes > 1), 0.75 * rates["ring"], 0)
    if kind != "all_reduce":
        return rates
    rates["tree"] = 0.5 * constants.tree * slowest
    whole = (where.nodes == 1) | (where.per_node == system.devices_per_node)
    if system.intra.nvls:
        link_generation = generation(system)
        able = whole & (where.per_node >= constants.nvls_ranks.get(link_generation, RANKS))
        reduced = constants.nvls.get(link_generation, 0.71) * link
        rates["nvls"] = np.where(able & (where.nodes == 1), reduced, 0.0)
        joined = np.minimum(constants.nvls_nodes * reduced, out * np.where(where.nodes > 2, 0.5, 1))
        rates["nvls_tree"] = np.where(able & (where.nodes > 1), joined, 0.0)
    if system.network is not None and system.network.sharp:
        ranks = np.maximum(where.per_node, 2.0)
        inside = np.maximum(
            constants.collnet * link / wire_share(kind, ranks), rates.get("nvls", 0)
        )
        rates["collnet"] = np.where(whole & (where.nodes > 1), np.minimum(inside, out), 0.0)
    return rates


def _busy(system: System, where: Groups, constants: Constants) -> Array:
    """What few ranks in a node reach of the bandwidth of a ring of 8, whose share the catalog has.

    (1 + idle / 14) / (1 + idle / (2 (n - 1))): of the 2 (n - 1) steps in which a chunk goes round
    twice, a part `idle` of one step's length passes with nothing on the links; 14 with 8 ranks.

    Source: `Constants.idle`.
    Leaves out: gathers and reduce-scatters, of which no curve of few ranks is public.
    """
    bridged = system.intra.fabric == "nvlink-mesh" and system.devices_per_node == 2
    idle = constants.idle.get("bridge" if bridged else generation(system), 0.0)
    ranks = np.clip(where.size, 2.0, RANKS)
    steps = 2.0 * (ranks - 1.0)
    reached = (1.0 + idle / (2.0 * (RANKS - 1.0))) / (1.0 + idle / steps)
    return np.asarray(np.where(where.nodes == 1, reached, 1.0))


def _all_to_all(link: float, out: Array, where: Groups) -> Array:
    """Every rank sends S / n to each other one; links and interfaces work at the same time."""
    inside = (where.per_node - 1.0) / where.size / link
    across = where.per_node * (where.size - where.per_node) / where.size / out
    return np.asarray(1.0 / np.maximum(np.maximum(inside, across), 1e-30))


def least_seconds(system: System, kind: CollectiveKind, size: Array, where: Groups) -> Array:
    """What no collective undercuts: the bytes of the leanest algorithm over the raw link rates.

    Of S, each rank sends its wire share, with NVLS (n + 1)/n of an all-reduce; of N nodes each
    sends (N - 1)/N, twice for an all-reduce.
    """
    ranks = np.maximum(where.size, 2.0)
    wire = wire_share(kind, ranks)
    if kind == "all_reduce" and system.intra.nvls:
        wire = np.minimum(wire, (ranks + 1.0) / ranks)
    inside = np.where(where.per_node > 1, wire * size / system.intra.bandwidth, 0.0)
    if system.network is None:
        return np.asarray(inside)
    rate = inter_bandwidth(system, where) / system.network.efficiency
    twice = 2.0 if kind == "all_reduce" and not system.network.sharp else 1.0
    leaving = np.where(where.nodes > 1, twice * (where.nodes - 1.0) / where.nodes, 0.0)
    return np.asarray(np.maximum(inside, leaving * size / rate))
