"""Which algorithm and protocol NCCL takes for a collective, and what a forced one takes.

NCCL ranks its algorithms by tables of its own (`parsim/cost/collective/nccl.py`), which a tuner
plugin may overrule (`parsim/cost/collective/tuner.py`); gloo has a ring only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from parsim.arrays import Array
from parsim.cluster.hardware import System
from parsim.cost.collective.collectives import collective_time, time_at_share
from parsim.cost.collective.group_bandwidth import GLOO, Groups, inter_bandwidth
from parsim.cost.collective.kinds import Algorithm, CollectiveKind, generation
from parsim.cost.collective.modelled import bandwidths
from parsim.cost.collective.nccl import Call, Protocol, estimates, table
from parsim.cost.collective.tuner import areas, chosen
from parsim.errors import PlanError

PROTOCOL_SHARE: dict[Protocol, float] = {"LL": 0.5, "LL128": 0.92, "Simple": 1.0}
"""Share of the bandwidth that carries data: LL sends a flag with every 4 bytes."""


ALIKE = 1.05
"""Factor within which two times are alike: median error of collectives across nodes, 5 %
(reports/collectives.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveChoice:
    """What NCCL (of which release) does with a collective, and how long it takes."""

    library: str
    algorithm: Algorithm
    protocol: Protocol
    seconds: float


def choose(
    system: System,
    kind: CollectiveKind,
    size: float,
    where: Groups,
    *,
    algorithm: Algorithm | None = None,
    protocol: Protocol | None = None,
) -> CollectiveChoice:
    """What NCCL does with one collective of the first group, by its tables, and how long it takes.

    Forcing an algorithm (or protocol), as NCCL_ALGO and NCCL_PROTO do, gives the time of that one:
    its own bandwidth instead of the best one's. Left free, the time is `collective_time`'s, and the
    algorithm the first in NCCL's order that takes this time (`ALIKE`).
    gloo has its ring only; an all-to-all is messages.

    Raises:
        PlanError: the algorithm or protocol cannot serve this collective on this group.
        CatalogError: no table of the system's library.
    """
    if system.library == GLOO or kind == "all_to_all":
        return _only_choice(system, kind, size, where, algorithm, protocol)
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
    if algorithm is None and protocol is None:
        plugin = _by_plugin(system, kind, size, where)
        name, wire = plugin or _timed(system, kind, size, where, ranked, rates)
        seconds = float(collective_time(system, kind, size, where)[0])
    else:
        name, wire = min(ranked, key=lambda pair: ranked[pair])
        share = rates[name] * (PROTOCOL_SHARE[wire] if protocol else 1.0) / max(rates.values())  # type: ignore[index]
        seconds = _forced(system, kind, size, where, share)
    taken: Algorithm = name  # type: ignore[assignment]
    return CollectiveChoice(library=system.library, algorithm=taken, protocol=wire, seconds=seconds)


def _timed(
    system: System,
    kind: CollectiveKind,
    size: float,
    where: Groups,
    ranked: Mapping[tuple[str, Protocol], float],
    rates: Mapping[Algorithm, float],
) -> tuple[str, Protocol]:
    """The first of NCCL's order whose own time is that of the collective."""
    seconds = float(collective_time(system, kind, size, where)[0])
    order = sorted(ranked, key=lambda pair: ranked[pair])
    best = max(rates.values())
    for name, wire in order:
        share = rates[name] / best  # type: ignore[index]
        if _forced(system, kind, size, where, share) <= ALIKE * seconds:
            return name, wire
    return order[0]


def _only_choice(
    system: System,
    kind: CollectiveKind,
    size: float,
    where: Groups,
    algorithm: Algorithm | None,
    protocol: Protocol | None,
) -> CollectiveChoice:
    """The ring of gloo, or the messages of an all-to-all, for which there is nothing to choose."""
    only: Algorithm = "p2p" if kind == "all_to_all" else "ring"
    _refuse_other(algorithm, (only,), kind, system)
    if protocol not in (None, "Simple"):
        raise PlanError(f"{kind} has no protocol {protocol} on {system.id}; allowed: Simple")
    seconds = float(collective_time(system, kind, size, where)[0])
    return CollectiveChoice(
        library=system.library, algorithm=only, protocol="Simple", seconds=seconds
    )


def _by_plugin(
    system: System, kind: CollectiveKind, size: float, where: Groups
) -> tuple[str, Protocol] | None:
    """What the system's tuner plugin takes, None where it leaves the choice to NCCL."""
    if system.tuner is None:
        return None
    index = int(chosen(system, kind, np.array([float(size)]), where)[0])
    if index < 0:
        return None
    area = areas(system.tuner, kind)[index]
    return area.algorithm, area.protocol


def _forced(
    system: System, kind: CollectiveKind, size: float, where: Groups, share: float
) -> float:
    """Seconds of the first group with a share of the best bandwidth."""
    return float(
        time_at_share(system, kind, np.asarray(float(size)), where, share, queued=False)[0]
    )


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
    return time_at_share(system, kind, size, where, share, queued=queued)


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
    total = float(system.intra.rate * where.ring_share[0])
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
