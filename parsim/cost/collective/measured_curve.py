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

from collections.abc import Iterator
from dataclasses import fields, replace
from functools import lru_cache
from typing import Literal

import numpy as np

from parsim.arrays import Array, Flags, Index
from parsim.cluster.hardware import Curve, System
from parsim.cost.collective.group_bandwidth import Groups
from parsim.cost.collective.kinds import CONSTANTS, CollectiveKind, Constants
from parsim.cost.collective.mesh_links import members_share
from parsim.cost.collective.modelled import Shape, modelled
from parsim.units import KIB, MIB

FEW = 64
"""Groups that are looked up together: what search and prediction price, not whole spaces."""


def shape(
    system: System, kind: CollectiveKind, where: Groups, constants: Constants = CONSTANTS
) -> Shape:
    """Measured shape where the system has a curve for it, else the one from links and constants.

    An exact curve holds for its ranks on its nodes. Inside a node, other rank counts take the
    nearest curve (by ratio), each of its three figures scaled as links and constants scale; one
    that those do not have (gloo's latency and ramp) as it was measured. Where links or network wait
    longer than in the measurement, the difference comes on top.

    Source: reports/collectives.md.
    Leaves out: other traffic on the links, dips where NCCL changes protocol.
    """
    if constants is CONSTANTS and where.size.size <= FEW:
        return _known_shape(system, kind, _Placed(where))
    return _shape(system, kind, where, constants)


class _Placed:
    """Groups that equal others of the same columns, so that their shape is looked up."""

    __slots__ = ("columns", "where")

    def __init__(self, where: Groups) -> None:
        columns = (getattr(where, name) for name in _COLUMNS)
        self.where = where
        self.columns = tuple((each.tobytes(), each.shape, each.dtype.char) for each in columns)

    def __hash__(self) -> int:
        return hash(self.columns)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Placed) and self.columns == other.columns


_COLUMNS = tuple(column.name for column in fields(Groups))


@lru_cache(maxsize=1024)
def _known_shape(system: System, kind: CollectiveKind, placed: _Placed) -> Shape:
    """The shape of few groups: plans of one shape after another have the same ones."""
    return _shape(system, kind, placed.where, CONSTANTS)


def _shape(system: System, kind: CollectiveKind, where: Groups, constants: Constants) -> Shape:
    curves = [curve for curve in system.curves if curve.collective == kind]
    if not curves:
        return modelled(system, kind, where, constants)
    then = _at_latencies(system, curves[0])
    if then is not system:
        before, now = (modelled(s, kind, where, constants) for s in (then, system))
        figures = _shape(then, kind, where, constants)
        return replace(
            figures,
            latency=_moved(figures.latency, before.latency, now.latency),
            slow=_moved(figures.slow, before.slow, now.slow),
        )
    return _by_curves(system, kind, where, curves, constants)


def _by_curves(
    system: System,
    kind: CollectiveKind,
    where: Groups,
    curves: list[Curve],
    constants: Constants,
) -> Shape:
    """The shape of links and constants, moved to what each group's curve was measured at."""
    model = modelled(system, kind, where, constants)
    latency, bandwidth, ramp = (x.copy() for x in (model.latency, model.bandwidth, model.ramp))
    slow = np.array(np.broadcast_to(model.slow, latency.shape))
    for curve, chosen in zip(curves, _choices(curves, where), strict=True):
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


def _at_latencies(system: System, curve: Curve) -> System:
    """The system with the latencies that a curve was measured at: itself, if they are its own."""
    intra, network = system.intra, system.network
    if curve.hop is not None and curve.hop != intra.latency:
        intra = replace(intra, latency=curve.hop)
    if network and curve.crossing is not None and curve.crossing != network.latency:
        network = replace(network, latency=curve.crossing)
    if intra is system.intra and network is system.network:
        return system
    return replace(system, intra=intra, network=network)


def _moved(figure: Array | float, before: Array | float, now: Array | float) -> Array:
    """A measured figure with what the model's has now beyond that of before, or its part of it."""
    part = np.minimum(now / np.maximum(before, 1e-30), 1.0)
    return np.asarray(figure * part + np.maximum(np.subtract(now, before), 0.0))


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


def _choices(curves: list[Curve], where: Groups) -> Iterator[Flags]:
    """Which groups take each of the curves, (B,)."""
    apart = [
        np.abs(np.log(where.size / curve.ranks)) if curve.nodes == 1 else np.inf * where.size
        for curve in curves
    ]
    nearest, inside = np.argmin(np.stack(apart), axis=0), where.nodes == 1
    for index, curve in enumerate(curves):
        yield _exactly(curve, where) if curve.nodes > 1 else np.asarray(inside & (nearest == index))


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
    shares = members_share(system, range(curve.ranks // curve.nodes))
    column = {
        "size": curve.ranks,
        "per_node": curve.ranks / curve.nodes,
        "nodes": curve.nodes,
        "sharing": 1,
    }
    where = Groups(
        **{name: np.array([float(value)]) for name, value in column.items()},
        leaves=np.array([False]),
        ring_share=np.array([shares[0]]),
        pair_share=np.array([shares[1]]),
    )
    return modelled(replace(system, intra=intra, network=network), kind, where, constants)


SPREAD = {
    "measured": (0.57, 0.36, 0.12, 0.04),
    "node": (0.66, 0.50, 0.15, 0.04),
    "across": (0.85, 0.82, 0.57, 0.22),
}
"""Standard deviation of ln(measured / predicted), by `size_class`."""


def size_class(size: Array | float) -> Index:
    """0 below 64 KiB, 1 below 1 MiB, 2 up to 64 MiB, 3 above."""
    size = np.asarray(size, dtype=np.float64)
    return (size >= 64 * KIB).astype(np.int64) + (size >= MIB) + (size > 64 * MIB)


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
