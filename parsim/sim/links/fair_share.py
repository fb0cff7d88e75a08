"""Max-min fair rates of flows over shared links, by progressive filling.

Two flows over link A (10), one of them also over B (4); a third over B alone:

    A 10  ├── f0 ───────┤ f1          shares: A 10/2 = 5, B 4/2 = 2: B is the tighter one,
    B  4            f1  ├── f2        f1 = f2 = 2, and f0 takes what is left of A: 8

A rate is raised until a link on the flow's way is full; nobody on that link has more than this
flow. Where several links are each the tightest for all flows on them, all are filled at once, which
gives the same rates in fewer rounds. A link's share never falls from one round to the next: taking
it as it was bounds rounding, so that no link ends above its capacity by more than that.

Identical flows are folded: `multiplicity` m counts as m flows. `usage` is what a flow takes of a
link for each unit of its rate (2 where a ring crosses the same link twice). `limit` is the rate
that a flow does not exceed however free its links are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from parsim.arrays import Array, Index, sorted_values
from parsim.errors import InputError, ParsimError

OVERLOAD = 1e-12
"""Share by which rounding may lift a link above its capacity."""

TIGHT = 1e-9
"""A link is full, and a rate the highest of a link, within this share."""

ENDED = 1e-12
"""Share of its bytes that a flow may lack when it ends: flows that end together do so at once."""


class CertificateError(ParsimError):
    """Rates that are not max-min fair: a bug of parsim, never the user's input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flows:
    """F flows over L links: flow f crosses `links[bounds[f] : bounds[f + 1]]`, each once.

    `usage` goes with `links`; `multiplicity`, `limit` (F,) and `capacity` (L,) are positive, and
    only `limit` may be infinite. Any unit of rate, the same for capacities and limits.
    """

    bounds: Index
    links: Index
    usage: Array
    multiplicity: Array
    limit: Array
    capacity: Array

    @classmethod
    def of(
        cls,
        paths: Sequence[Sequence[int]],
        capacity: Array | Sequence[float],
        *,
        usage: Sequence[Sequence[float]] | None = None,
        multiplicity: Array | Sequence[float] | None = None,
        limit: Array | Sequence[float] | None = None,
    ) -> Flows:
        """Flows by the links that each crosses.

        Raises:
            InputError: a value that is not positive, an unknown or repeated link, or a flow that
                nothing limits.
        """
        bounds = np.concatenate([[0], np.cumsum([len(path) for path in paths])]).astype(np.int64)
        links = np.array([link for path in paths for link in path], dtype=np.int64)
        used = np.ones(len(links))
        if usage is not None:
            used = np.array([share for shares in usage for share in shares], dtype=np.float64)
        flows = cls(
            bounds=bounds,
            links=links,
            usage=used,
            multiplicity=_column(multiplicity, len(paths), 1.0),
            limit=_column(limit, len(paths), np.inf),
            capacity=np.asarray(capacity, dtype=np.float64),
        )
        flows.check()
        return flows

    @property
    def owner(self) -> Index:
        """The flow of each entry of `links`."""
        return np.repeat(np.arange(len(self.multiplicity)), np.diff(self.bounds))

    @property
    def weight(self) -> Array:
        """What each entry takes of its link for each unit of the flow's rate."""
        return np.asarray(self.multiplicity[self.owner] * self.usage)

    def take(self, chosen: Index) -> Flows:
        """Some of the flows."""
        width = np.diff(self.bounds)[chosen]
        bounds = np.concatenate([[0], np.cumsum(width)])
        entries = np.repeat(self.bounds[chosen] - bounds[:-1], width) + np.arange(bounds[-1])
        return Flows(
            bounds=bounds,
            links=self.links[entries],
            usage=self.usage[entries],
            multiplicity=self.multiplicity[chosen],
            limit=self.limit[chosen],
            capacity=self.capacity,
        )

    def check(self) -> None:
        """Refuse what has no fair rates.

        Raises:
            InputError: naming the first wrong value.
        """
        _positive("capacity of link", self.capacity, finite=True)
        _positive("multiplicity of flow", self.multiplicity, finite=True)
        _positive("usage in entry", self.usage, finite=True)
        _positive("limit of flow", self.limit, finite=False)
        if len(self.usage) != len(self.links):
            raise InputError(f"{len(self.usage)} usages for {len(self.links)} links of flows")
        strange = self.links[(self.links < 0) | (self.links >= len(self.capacity))]
        if len(strange):
            raise InputError(
                f"a flow crosses link {strange[0]}; allowed: 0 to {len(self.capacity) - 1}"
            )
        pairs = self.owner * max(len(self.capacity), 1) + self.links
        if len(sorted_values(pairs)) < len(pairs):
            raise InputError("a flow crosses a link twice; name it once with its usage summed up")
        free = np.flatnonzero((np.diff(self.bounds) == 0) & np.isinf(self.limit))
        if len(free):
            raise InputError(f"flow {free[0]} crosses no link and has no limit")


def fair_rates(flows: Flows) -> Array:
    """Max-min fair rate of each flow, (F,), with its certificate checked.

    Raises:
        CertificateError: the rates are not fair (a bug of parsim).
    """
    rates = fill(flows)
    certify(flows, rates)
    return rates


def fill(flows: Flows) -> Array:
    """The rates by numpy: rounds of links that are the tightest for all flows on them."""
    rates = np.zeros(len(flows.multiplicity))
    crossing = np.diff(flows.bounds) > 0
    rates[~crossing] = flows.limit[~crossing]
    return _rounds(flows, np.flatnonzero(crossing), rates)


def _rounds(flows: Flows, waiting: Index, rates: Array) -> Array:
    """Fill the links of the flows that are still waiting for their rate."""
    count, taken = len(flows.capacity), np.zeros(len(flows.capacity))
    share = np.zeros(count)
    while len(waiting):
        part = flows.take(waiting)
        owner, weight = part.owner, part.weight
        asked = np.bincount(part.links, weights=weight, minlength=count)
        used = asked > 0
        left = (flows.capacity[used] - taken[used]) / asked[used]
        share[used] = np.maximum(left, share[used])
        tightest = np.minimum(np.minimum.reduceat(share[part.links], part.bounds[:-1]), part.limit)
        least = np.full(count, np.inf)
        np.minimum.at(least, part.links, tightest[owner])
        full = (share == least)[part.links]
        done = np.logical_or.reduceat(full, part.bounds[:-1]) | (tightest == part.limit)
        rates[waiting[done]] = tightest[done]
        ended = done[owner]
        taken += np.bincount(
            part.links[ended], weights=(weight * tightest[owner])[ended], minlength=count
        )
        waiting = waiting[~done]
    return rates


def link_loads(flows: Flows, rates: Array) -> Array:
    """What all flows together carry over each link, (L,)."""
    carried = flows.weight * rates[flows.owner]
    loads = np.bincount(flows.links, weights=carried, minlength=len(flows.capacity))
    return np.asarray(loads, dtype=np.float64)


def certify(flows: Flows, rates: Array) -> None:
    """Check that rates are max-min fair, as their definition says.

    Every flow is at its limit, or crosses a full link on which no flow has a higher rate; and no
    link carries more than its capacity.

    Raises:
        CertificateError: naming the flow or the link.
    """
    loads = link_loads(flows, rates)
    over = np.flatnonzero(loads > flows.capacity * (1.0 + OVERLOAD))
    if len(over):
        link = int(over[0])
        raise CertificateError(
            f"link {link} carries {loads[link]!r} above its capacity {flows.capacity[link]!r}"
        )
    highest, owner = np.zeros(len(flows.capacity)), flows.owner
    np.maximum.at(highest, flows.links, rates[owner])
    full = loads >= flows.capacity * (1.0 - TIGHT)
    held_back = full[flows.links] & (rates[owner] >= highest[flows.links] * (1.0 - TIGHT))
    fair = rates >= flows.limit * (1.0 - TIGHT)
    fair[owner[held_back]] = True
    if not fair.all():
        flow = int(np.flatnonzero(~fair)[0])
        raise CertificateError(
            f"flow {flow} has rate {rates[flow]!r} and no full link on which that is the highest"
        )


def _column(values: Array | Sequence[float] | None, count: int, default: float) -> Array:
    """Values of all flows; the default for each where none are given."""
    column = np.full(count, default) if values is None else np.array(values, dtype=np.float64)
    if column.shape != (count,):
        raise InputError(f"{len(column)} values for {count} flows; give one for each")
    return column


def _positive(what: str, values: Array, *, finite: bool) -> None:
    good = (values > 0) & (np.isfinite(values) if finite else ~np.isnan(values))
    if not good.all():
        index = int(np.flatnonzero(~good)[0])
        raise InputError(f"{what} {index} is {values[index]}; it must be above 0")
