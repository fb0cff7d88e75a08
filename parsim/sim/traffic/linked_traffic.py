"""All traffic of one or more jobs over one set of links, with equal flows counted once.

Links of a class that all kinds use alike are one link here: of 1,024 devices' links some ten are
left, so that a set of rates takes as long as on one node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from parsim.arrays import Array
from parsim.sim.links.collective_flows import LinkGraph
from parsim.sim.links.fair_share import Flows
from parsim.sim.traffic.step_traffic import Role, Sent


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedTraffic:
    """All kinds (K,) of all jobs over folded links (L,).

    `numbers` are for each job the flow of each role, `limit` and `latency_share` (K,) those of the
    kinds. `names`, `classes` and `folded` of each link: one of the links that it stands for, its
    class, how many they are. `users` (L,) are the jobs that send over it.
    """

    flows: Flows
    numbers: tuple[Mapping[Role, int], ...]
    limit: Array
    latency_share: Array
    names: tuple[str, ...]
    classes: tuple[str, ...]
    folded: tuple[int, ...]
    users: tuple[frozenset[int], ...]

    @property
    def class_names(self) -> tuple[str, ...]:
        """Classes of links in the order of their account."""
        return tuple(dict.fromkeys(self.classes))

    @property
    def groups(self) -> list[int]:
        """The class of each link as its position in `class_names`."""
        known = self.class_names
        return [known.index(name) for name in self.classes]


def _ways(
    columns: Sequence[Sequence[tuple[int, float]]], kinds: int
) -> tuple[list[list[int]], list[list[float]]]:
    """The links of each kind and what it takes of them, from the kinds of each link."""
    paths: list[list[int]] = [[] for _ in range(kinds)]
    usage: list[list[float]] = [[] for _ in range(kinds)]
    for link, column in enumerate(columns):
        for kind, units in column:
            paths[kind].append(link)
            usage[kind].append(units)
    return paths, usage


def link_traffic(jobs: Sequence[Mapping[Role, Sent]], graph: LinkGraph) -> LinkedTraffic:
    """The kinds of all jobs over the links of one graph."""
    numbers, sent = _numbered(jobs)
    owner = [job for job, kinds in enumerate(jobs) for _ in kinds]
    columns: dict[int, list[tuple[int, float]]] = {}
    for kind, traffic in enumerate(sent):
        for link, units in traffic.usage.items():
            columns.setdefault(link, []).append((kind, units))
    first, folded = _folded(columns, graph)
    paths, usage = _ways([columns[link] for link in first], len(sent))
    limit = np.array([traffic.limit for traffic in sent])
    names, classes = graph.names, graph.link_class
    return LinkedTraffic(
        flows=Flows.of(paths, graph.effective[first], usage=usage, limit=limit),
        numbers=numbers,
        limit=limit,
        latency_share=np.array([traffic.latency_share for traffic in sent]),
        names=tuple(names[link] for link in first),
        classes=tuple(classes[link] for link in first),
        folded=tuple(folded),
        users=tuple(frozenset(owner[kind] for kind, _ in columns[link]) for link in first),
    )


def _numbered(
    jobs: Sequence[Mapping[Role, Sent]],
) -> tuple[tuple[dict[Role, int], ...], list[Sent]]:
    """A number for each kind of each job, and the kinds in that order."""
    numbers: list[dict[Role, int]] = []
    sent: list[Sent] = []
    for kinds in jobs:
        numbers.append({role: len(sent) + index for index, role in enumerate(kinds)})
        sent += kinds.values()
    return tuple(numbers), sent


def _folded(
    columns: Mapping[int, list[tuple[int, float]]], graph: LinkGraph
) -> tuple[list[int], list[int]]:
    """The first link of each set that is used alike, and how many each set has."""
    rate, classes = graph.effective, graph.link_class
    position: dict[object, int] = {}
    first: list[int] = []
    folded: list[int] = []
    for link in sorted(columns):
        key = (classes[link], float(rate[link]), tuple(columns[link]))
        if key not in position:
            position[key] = len(first)
            first.append(link)
            folded.append(0)
        folded[position[key]] += 1
    return first, folded
