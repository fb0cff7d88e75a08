"""What links did while steps ran: use by class, the bottleneck, and load over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from parsim.arrays import Array
from parsim.sim.events.fabric import Fabric

LoadHistory = list[tuple[float, Array]]
"""Times, and what all folded links carry from then on, bytes/s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassUse:
    """Seconds in which any link of a class carried something, and was full."""

    link_class: str
    busy: float
    saturated: float

    def times(self, share: float) -> ClassUse:
        """Seconds of so much of the time."""
        return replace(self, busy=share * self.busy, saturated=share * self.saturated)

    def to_json(self) -> dict[str, Any]:
        """One entry of `classes`."""
        return {"class": self.link_class, "busy_s": self.busy, "saturated_s": self.saturated}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bottleneck:
    """The link that holds traffic back; `alike` links carry the same.

    `saturated` are the seconds in which it was full (from `shared_links.FULL` of its rate on),
    `busy` those in which it carried anything, `used` is the share of its rate that it did then.
    """

    link: str
    link_class: str
    saturated: float
    alike: int
    busy: float
    used: float

    def times(self, share: float) -> Bottleneck:
        """Seconds of so much of the time."""
        return replace(self, busy=share * self.busy, saturated=share * self.saturated)

    def to_json(self) -> dict[str, Any]:
        """The object `bottleneck`."""
        return {
            "link": self.link,
            "class": self.link_class,
            "saturated_s": self.saturated,
            "links_alike": self.alike,
            "busy_s": self.busy,
            "used_while_busy": self.used,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkCurve:
    """Share of its rate that the busiest link of a class carries, from each time to the next."""

    link_class: str
    times: tuple[float, ...]
    used: tuple[float, ...]


def class_uses(fabric: Fabric) -> tuple[ClassUse, ...]:
    """The account of each class of links."""
    links = fabric.links
    columns = (fabric.traffic.class_names, links.class_busy, links.class_saturated)
    return tuple(
        ClassUse(link_class=name, busy=float(busy), saturated=float(full))
        for name, busy, full in zip(*columns, strict=True)
    )


def bottleneck(fabric: Fabric, among: Sequence[int] | None = None) -> Bottleneck | None:
    """The link that held traffic back longest, or was full longest where none did.

    Among equals the one that carried most for its rate. `among` are the folded links that count;
    all where it is left out. None where none carried anything.
    """
    links, traffic = fabric.links, fabric.traffic
    chosen = np.arange(len(links.busy)) if among is None else np.asarray(among, dtype=np.int64)
    if not np.any(links.busy[chosen]):
        return None
    used = (links.load / traffic.flows.capacity)[chosen]
    order = np.lexsort((used, links.saturated[chosen], links.limiting[chosen]))
    worst = int(chosen[order[-1]])
    return Bottleneck(
        link=traffic.names[worst],
        link_class=traffic.classes[worst],
        saturated=float(links.saturated[worst]),
        alike=traffic.folded[worst],
        busy=float(links.busy[worst]),
        used=float(links.load[worst] / (traffic.flows.capacity[worst] * links.busy[worst])),
    )


def link_curves(fabric: Fabric, history: LoadHistory) -> tuple[LinkCurve, ...]:
    """Curves of the loads in a history."""
    if not history:
        return ()
    used = np.array([loads for _, loads in history]) / fabric.traffic.flows.capacity
    classes, times = np.array(fabric.traffic.classes), tuple(now for now, _ in history)
    return tuple(
        LinkCurve(link_class=name, times=times, used=tuple(used[:, classes == name].max(axis=1)))
        for name in fabric.traffic.class_names
    )
