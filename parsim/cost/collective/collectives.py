"""Seconds of collectives and of point-to-point messages on a group of ranks.

Seconds come from measured shapes (`parsim/cost/collective/measured_curve.py`), the algorithm and
protocol from NCCL's own model (`parsim/cost/collective/nccl.py`); gloo has a ring of its own. Sizes
follow nccl-tests: S is the whole array for all-gather and reduce-scatter, and what one rank sends
in all for all-to-all.

A system's `call_overhead` comes on top. Measured shapes hold what a call takes in a loop of
collectives alone; the overhead is what a training step adds, where ranks arrive late and the call
goes through the framework. A benchmark of collectives is compared without it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from parsim.arrays import Array, Flags, Index
from parsim.cluster.hardware import System
from parsim.cost.collective.group_bandwidth import (
    GLOO,
    Groups,
    Ranks,
    groups,
    inter_bandwidth,
    one_group,
    placed_groups,
)
from parsim.cost.collective.measured_curve import (
    CONSTANTS,
    Algorithm,
    CollectiveKind,
    bandwidths,
    generation,
    least_seconds,
    measured,
    shape,
)
from parsim.cost.collective.nccl import Call, Protocol, estimates, table
from parsim.cost.collective.tuner import areas, chosen, tuned
from parsim.cost.kernel.residuals import measured_factor
from parsim.errors import PlanError

__all__ = (
    "GLOO",
    "Algorithm",
    "Choice",
    "CollectiveKind",
    "Groups",
    "Protocol",
    "Ranks",
    "choose",
    "collective_spread",
    "collective_time",
    "forced_time",
    "groups",
    "inter_bandwidth",
    "longer_wait",
    "one_group",
    "p2p_time",
    "placed_groups",
    "size_class",
    "waiting_time",
)

PROTOCOL_SHARE: dict[Protocol, float] = {"LL": 0.5, "LL128": 0.92, "Simple": 1.0}
"""Share of the bandwidth that carries data: LL sends a flag with every 4 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What NCCL (of which release) does with a collective, and how long it takes."""

    library: str
    algorithm: Algorithm
    protocol: Protocol
    seconds: float


def collective_time(
    system: System,
    kind: CollectiveKind,
    size: Array | float,
    where: Groups,
    *,
    queued: bool = False,
) -> Array:
    """Time of one collective on each plan's group; 0 for groups of one rank.

    latency + S / bandwidth + ramp sqrt(S / 1 MiB), never below S over the links, plus the system's
    call overhead, times what a calibration measured beside the model.

    Args:
        system: link rates, curves and overheads.
        kind: which collective.
        size: S bytes, nccl-tests convention.
        where: placement of the groups.
        queued: one of a row of calls on a stream of their own, whose ranks have met before it.

    Source: public curves, reports/collectives.md: median error 4 % within an NVLink domain and 5 %
    across nodes for curves that the constants have not seen, 1 MiB and more.
    Leaves out: sharing of links with other traffic, dips where NCCL changes protocol.
    """
    size = np.asarray(size, dtype=np.float64)
    seconds = shape(system, kind, where).seconds(size)
    if system.library != GLOO:
        if system.tuner is not None:
            seconds = tuned(system, kind, size, where, seconds)
        seconds = np.maximum(seconds, least_seconds(system, kind, size, where))
    return _called(system, kind, size, where, seconds + _overhead(system, where, queued))


def waiting_time(
    system: System,
    kind: CollectiveKind,
    size: Array | float,
    where: Groups,
    *,
    queued: bool = False,
) -> Array:
    """Seconds of a collective in which its bytes do not flow: latency at its size, and call.

    Args as of `collective_time`.
    """
    small = collective_time(system, kind, 1.0, where, queued=queued)
    return np.asarray(small + longer_wait(system, kind, size, where))


def longer_wait(system: System, kind: CollectiveKind, size: Array | float, where: Groups) -> Array:
    """By how much the latency of S bytes exceeds that of one byte, seconds.

    Nothing where the system's plugin chooses the algorithm.
    """
    size = np.asarray(size, dtype=np.float64)
    figures = shape(system, kind, where)
    more = figures.waiting(size) - figures.waiting(1.0)
    return np.where(chosen(system, kind, size, where) < 0, more, 0.0)


def _overhead(system: System, where: Groups, queued: bool) -> Array:
    """Seconds that a call costs in a step beyond a benchmark, (B,).

    The part that grows with the ranks is what compute waits for the last of the processes of a node
    to launch its part: between nodes nobody has measured it, and a call that is queued behind
    others of its group finds all ranks there.

    Source: 24 dense rows of SimuMax, tensor-parallel groups of 2 to 8 in a node of B200; as much
    for every further rank of any group put 8B on 64 to 256 B200 (MLPerf Training 5.1) at two to
    five times their step.
    """
    late = 0.0 if queued else system.call_overhead_per_rank * (where.per_node - 1.0)
    return np.asarray(system.call_overhead + late)


def _called(
    system: System, kind: CollectiveKind, size: Array, where: Groups, seconds: Array
) -> Array:
    seconds = seconds * _measured(system, kind, size, where)
    return np.where((where.size > 1) & (size > 0), seconds, 0.0)


def _measured(system: System, kind: CollectiveKind, size: Array, where: Groups) -> Array | float:
    """What a calibration of one node measured beside the model, by size and ranks of the group."""
    if kind not in system.residuals:
        return 1.0
    ranks = np.maximum(where.size, 2.0)
    factor = measured_factor(system.residuals, kind, size, ranks)
    return np.where(where.nodes > 1, 1.0, factor)


def choose(
    system: System,
    kind: CollectiveKind,
    size: float,
    where: Groups,
    *,
    algorithm: Algorithm | None = None,
    protocol: Protocol | None = None,
) -> Choice:
    """What NCCL does with one collective of the first group, by its tables, and how long it takes.

    Forcing an algorithm (or protocol), as NCCL_ALGO and NCCL_PROTO do, gives the time of that one:
    its own bandwidth instead of the best one's. Left free, the time is `collective_time`'s, which
    does not depend on the algorithm that the tables name.
    gloo has its ring only; an all-to-all is messages.

    Raises:
        PlanError: the algorithm or protocol cannot serve this collective on this group.
        CatalogError: no table of the system's library.
    """
    if system.library == GLOO or kind == "all_to_all":
        only: Algorithm = "p2p" if kind == "all_to_all" else "ring"
        _refuse_other(algorithm, (only,), kind, system)
        if protocol not in (None, "Simple"):
            raise PlanError(f"{kind} has no protocol {protocol} on {system.id}; allowed: Simple")
        seconds = float(collective_time(system, kind, size, where)[0])
        return Choice(library=system.library, algorithm=only, protocol="Simple", seconds=seconds)
    rates = {name: float(rate[0]) for name, rate in bandwidths(system, kind, where).items()}
    guessed = estimates(system.library, _call(system, kind, size, where))
    able = tuple(dict.fromkeys(name for name, _ in guessed if rates.get(name, 0.0) > 0.0))  # type: ignore[call-overload]
    _refuse_other(algorithm, able, kind, system)
    ranked = {
        pair: seconds
        for pair, seconds in guessed.items()
        if pair[0] in able and algorithm in (None, pair[0]) and protocol in (None, pair[1])
    }
    if not ranked:
        raise PlanError(f"{algorithm or kind} has no protocol {protocol}; allowed: Simple")
    name, wire = min(ranked, key=lambda pair: ranked[pair])
    if algorithm is None and protocol is None and system.tuner is not None:
        name, wire = _by_plugin(system, kind, size, where) or (name, wire)
    taken: Algorithm = name  # type: ignore[assignment]
    if algorithm is None and protocol is None:
        seconds = float(collective_time(system, kind, size, where)[0])
    else:
        share = rates[taken] * (PROTOCOL_SHARE[wire] if protocol else 1.0) / max(rates.values())
        seconds = _forced(system, kind, size, where, share)
    return Choice(library=system.library, algorithm=taken, protocol=wire, seconds=seconds)


def _by_plugin(
    system: System, kind: CollectiveKind, size: float, where: Groups
) -> tuple[str, Protocol] | None:
    """What the system's tuner plugin takes, None where it leaves the choice to NCCL."""
    index = int(chosen(system, kind, np.array([float(size)]), where)[0])
    if index < 0 or system.tuner is None:
        return None
    area = areas(system.tuner, kind)[index]
    return area.algorithm, area.protocol


def _forced(
    system: System, kind: CollectiveKind, size: float, where: Groups, share: float
) -> float:
    """Seconds of the first group with a share of the best bandwidth."""
    return float(_at_share(system, kind, np.asarray(float(size)), where, share, queued=False)[0])


def _at_share(
    system: System,
    kind: CollectiveKind,
    size: Array,
    where: Groups,
    share: Array | float,
    *,
    queued: bool,
) -> Array:
    """Seconds with a share of the best bandwidth; latency and ramp are kept."""
    best = shape(system, kind, where)
    slower = replace(best, bandwidth=best.bandwidth * share)
    seconds = np.maximum(slower.seconds(size), least_seconds(system, kind, size, where))
    return _called(system, kind, size, where, seconds + _overhead(system, where, queued))


def forced_time(
    system: System,
    kind: CollectiveKind,
    size: Array | float,
    where: Groups,
    algorithm: Algorithm,
    *,
    queued: bool = False,
) -> Array:
    """Time of one collective by an algorithm that the library need not have chosen, as NCCL_ALGO.

    Its own bandwidth instead of the best one's; gloo has its ring only.

    Raises:
        PlanError: the algorithm cannot do this collective on this group.
    """
    size = np.asarray(size, dtype=np.float64)
    if system.library == GLOO:
        _refuse_other(algorithm, ("ring",), kind, system)
        return collective_time(system, kind, size, where, queued=queued)
    rates = bandwidths(system, kind, where)
    grouped = where.size > 1
    able = tuple(name for name, rate in rates.items() if bool((rate > 0.0)[grouped].all()))
    _refuse_other(algorithm, able, kind, system)
    share = rates[algorithm] / np.maximum(np.max(list(rates.values()), axis=0), 1e-30)
    return _at_share(system, kind, size, where, share, queued=queued)


def _refuse_other(
    algorithm: Algorithm | None, able: tuple[str, ...], kind: CollectiveKind, system: System
) -> None:
    if algorithm is not None and algorithm not in able:
        raise PlanError(
            f"algorithm {algorithm} cannot do {kind} for this group on {system.id}; "
            f"allowed: {', '.join(able)}"
        )


def _call(system: System, kind: CollectiveKind, size: float, where: Groups) -> Call:
    link_generation = generation(system)
    known = table(system.library)
    able = bandwidths(system, kind, where)
    total = system.intra.bandwidth * system.intra.efficiency
    return Call(
        kind=kind,
        size=size,
        ranks=max(float(where.size[0]), 2.0),
        per_node=float(where.per_node[0]),
        nodes=float(where.nodes[0]),
        link="pcie" if system.intra.fabric == "pcie" else "nvlink",
        generation=link_generation if link_generation in known["channels"] else "ampere",
        total=total,
        out=float(inter_bandwidth(system, where)[0]) if where.nodes[0] > 1 else np.inf,
        nvls=any(float(able.get(name, np.zeros(1))[0]) > 0 for name in ("nvls", "nvls_tree")),
        sharp=system.network is not None and system.network.sharp,
    )


SPREAD = {
    "measured": (0.57, 0.36, 0.12, 0.04),
    "node": (0.66, 0.50, 0.15, 0.04),
    "across": (0.85, 0.82, 0.57, 0.22),
}
"""Standard deviation of ln(measured / predicted), by `size_class`."""


def size_class(size: Array | float) -> Index:
    """0 below 64 KiB, 1 below 1 MiB, 2 up to 64 MiB, 3 above."""
    size = np.asarray(size, dtype=np.float64)
    return (size >= 64 * 2.0**10).astype(np.int64) + (size >= 2.0**20) + (size > 64 * 2.0**20)


def collective_spread(
    system: System, kind: CollectiveKind | Literal["send_recv"], size: Array | float, where: Groups
) -> Array:
    """Standard deviation of the logarithm of a collective's error, by what its number rests on.

    A measured curve of this very group (or a calibration's residuals of it), links inside a node,
    or links and a network that nobody measured; by size class. An 80 % interval is the time times
    exp(+-1.28 sd). Sums of many calls are surer than that; their shared part is not.

    Messages of a benchmark count as measured where all-gathers are.

    Source: reports/collectives.md, 80th percentile of |ln error| over 1.28.
    Leaves out: systems that are not like any public one; networks that others use too.
    """
    sizes = size_class(size)
    like: CollectiveKind = "all_gather" if kind == "send_recv" else kind
    known = measured(system, like, where) | calibrated_groups(system, kind, where)
    node = np.where(
        where.nodes > 1, np.array(SPREAD["across"])[sizes], np.array(SPREAD["node"])[sizes]
    )
    return np.asarray(np.where(known, np.array(SPREAD["measured"])[sizes], node))


def calibrated_groups(
    system: System, kind: CollectiveKind | Literal["send_recv"], where: Groups
) -> Flags:
    """Which groups a calibration has measured: those of the ranks in its points, in one node.

    Points without ranks are an earlier calibration's, which measured pairs only. Messages go
    between two ranks whatever their group.
    """
    points = system.residuals.get(kind)
    inside = where.nodes <= 1
    if not points:
        return np.zeros(where.size.shape, dtype=bool)
    if kind == "send_recv":
        return np.asarray(inside)
    ranks = {point[1] for point in points} if len(points[0]) > 2 else {2.0}
    return np.asarray(inside & np.isin(where.size, list(ranks)))


def p2p_time(
    system: System,
    size: Array | float,
    *,
    crosses: Flags | bool,
    sharing: Array | float,
    spine: Array | float = 1.0,
) -> Array:
    """Time of one message between two ranks.

    latency + S / bandwidth; across nodes the senders of one node share its interfaces, and those
    of a leaf group its up-links. NCCL adds what its call takes; gloo's is all in the system's
    overhead.

    Args:
        system: link rates.
        size: bytes of the message.
        crosses: whether the message leaves the node.
        sharing: how many ranks of a node send at the same time.
        spine: what the up-links leave of an interface's bandwidth, as a divisor (`spine_divisor`).

    Source: alpha-beta model; one hop from the system file, NCCL's call from `CONSTANTS`.
    Leaves out: protocol switch of small messages, other traffic on the same links.
    """
    size = np.asarray(size, dtype=np.float64)
    near, far = (0.0, 0.0)
    if system.library != GLOO:
        near, far = CONSTANTS.message, CONSTANTS.message_across
    inside = near + system.intra.latency + size / (system.intra.bandwidth * system.intra.efficiency)
    network = system.network
    if network is None:
        across = np.full(size.shape, np.inf)
    else:
        lane = np.minimum(network.nic_bandwidth, network.node_bandwidth / np.maximum(sharing, 1.0))
        across = far + network.latency + size / (lane * network.efficiency / spine)
    seconds = np.where(crosses, across, inside) + system.call_overhead
    return np.where(size > 0, seconds * measured_factor(system.residuals, "send_recv", size), 0.0)
