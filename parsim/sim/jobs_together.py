"""Two or more jobs on one cluster: each one's step alone and beside the others.

    job 1   |──── step ────|──── step ────|──── step ────|
    job 2   |─ step ─|── step ──|─ step ─|── step ──|─ st      until the slowest has done three

All start together, and each begins its next step at once, so that the slower job's steps meet the
faster one's at several places of its pattern. Jobs that share no link do not slow each other, by
exactly nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from parsim.cluster.background import Stream
from parsim.cluster.hardware import Cluster, System
from parsim.cluster.node_list import free_devices
from parsim.cluster.topology import Graph, build_graph
from parsim.cluster.topology.storage import with_storage
from parsim.cost.job import Job
from parsim.errors import InputError
from parsim.plan import Plan
from parsim.sim.contention import any_ready, intact
from parsim.sim.fabric import Fabric
from parsim.sim.fair_share import Array
from parsim.sim.link_use import (
    Bottleneck,
    ClassUse,
    LinkCurve,
    bottleneck,
    class_uses,
    link_curves,
)
from parsim.sim.mixed_ready import MixedReady
from parsim.sim.repeated_steps import AnyReady, RepeatedSteps, stream_kinds
from parsim.timeline import Span, Timeline, ordered

Seen = list[tuple[float, Array]]

LEAST_STEPS = 3
"""Steps that every job ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAt:
    """A job's plan on some nodes of a shared cluster, with the streams beside its every step."""

    name: str
    job: Job
    plan: Plan
    nodes: tuple[int, ...]
    streams: tuple[Stream, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobBeside:
    """Seconds of a job's step: by tier B, alone on its nodes' links, and the mean beside others."""

    name: str
    plan: Plan
    nodes: tuple[int, ...]
    closed: float
    alone: float
    together: float
    longest: float
    steps: int

    @property
    def slowdown(self) -> float:
        """Together over alone, less one: 0 where the others do not matter."""
        return self.together / self.alone - 1.0

    def to_json(self) -> dict[str, Any]:
        """One entry of `jobs`."""
        return {
            "name": self.name,
            "plan": self.plan.label(),
            "nodes": list(self.nodes),
            "tier_b_s": self.closed,
            "alone_s": self.alone,
            "together_s": self.together,
            "longest_s": self.longest,
            "slowdown": self.slowdown,
            "steps": self.steps,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsTogether:
    """What jobs make of each other; `bottleneck` is among the links that several of them use.

    Its seconds, and those of `classes`, are of the `seconds` that were run; 0 and none where no
    link is shared.
    """

    jobs: tuple[JobBeside, ...]
    seconds: float
    shared_links: int
    bottleneck: Bottleneck | None
    classes: tuple[ClassUse, ...]

    def to_json(self) -> dict[str, Any]:
        """The block `together` of `parsim simulate --beside --json`."""
        return {
            "jobs": [one.to_json() for one in self.jobs],
            "simulated_s": self.seconds,
            "shared_links": self.shared_links,
            "bottleneck": self.bottleneck and self.bottleneck.to_json(),
            "classes": [one.to_json() for one in self.classes],
        }


class _Placed:
    """The shared cluster with all jobs on it, ready to run."""

    def __init__(
        self, jobs: Sequence[JobAt], system: System, failed: Sequence[str], storage: float | None
    ) -> None:
        last = max(node for one in jobs for node in one.nodes)
        cluster = Cluster(system=system, num_nodes=last + 1, failed=tuple(failed))
        graph = build_graph(cluster)
        self.graph = graph if storage is None else with_storage(graph, storage)
        self.jobs, self.ready = tuple(jobs), tuple[AnyReady, ...]()
        taken: dict[int, int] = {}
        for one in jobs:
            devices = _devices(one, system.devices_per_node, taken)
            self.ready = (*self.ready, _ready(one, self.graph, devices, system))

    def fabric(self, chosen: Sequence[int], seen: Seen | None = None) -> Fabric:
        """Links that the chosen jobs use; `seen` takes their loads."""
        watch = None if seen is None else lambda now, loads: seen.append((now, loads))
        return Fabric([self.ready[place].sent for place in chosen], self.graph, watch)

    def run(self, fabric: Fabric, chosen: Sequence[int], count: int) -> list[RepeatedSteps]:
        """Steps of the chosen jobs until each has ended so many."""
        running = [
            RepeatedSteps(fabric, self.ready[place], number, self.jobs[place].streams)
            for number, place in enumerate(chosen)
        ]
        for one in running:
            one.start()
        fabric.env.run(until=fabric.env.all_of([one.until(count) for one in running]))
        fabric.links.settle()
        return running

    def alone(self, place: int) -> float:
        """Seconds of a job's step with no other job."""
        return self.run(self.fabric([place]), [place], 1)[0].ended[0].seconds


def jobs_together(
    jobs: Sequence[JobAt],
    system: System,
    *,
    failed: Sequence[str] = (),
    storage: float | None = None,
) -> JobsTogether:
    """Run several jobs' steps in tier C on the links of one cluster.

    Args:
        jobs: each on its nodes; jobs on one node take its devices in this order.
        system: the whole nodes.
        failed: parts and cables of the shared cluster that are out of order.
        storage: bandwidth of its storage, bytes/s, where streams use it.

    Raises:
        InputError: nodes that do not fit a job, or have too few devices left.
        PlanError: a plan that is not legal.
        CatalogError: a fabric that cannot be built.
    """
    placed, every = _Placed(jobs, system, failed, storage), range(len(jobs))
    fabric = placed.fabric(every)
    shared = [link for link, users in enumerate(fabric.traffic.users) if len(users) > 1]
    alone = [placed.alone(place) for place in every]
    if not shared:
        found = [_beside(placed, place, alone[place], [alone[place]]) for place in every]
        return JobsTogether(
            jobs=tuple(found), seconds=0.0, shared_links=0, bottleneck=None, classes=()
        )
    ran = placed.run(fabric, every, LEAST_STEPS)
    return JobsTogether(
        jobs=tuple(
            _beside(placed, place, alone[place], [step.seconds for step in ran[place].ended])
            for place in every
        ),
        seconds=float(fabric.env.now),
        shared_links=sum(fabric.traffic.folded[link] for link in shared),
        bottleneck=bottleneck(fabric, shared),
        classes=class_uses(fabric),
    )


def together_timeline(
    jobs: Sequence[JobAt],
    system: System,
    *,
    failed: Sequence[str] = (),
    storage: float | None = None,
) -> tuple[Timeline, tuple[LinkCurve, ...]]:
    """What every rank of every job does, the jobs one below the other, and what links carry.

    Raises: as `jobs_together`.
    """
    placed, every = _Placed(jobs, system, failed, storage), range(len(jobs))
    seen: Seen = []
    fabric = placed.fabric(every, seen)
    spans: list[Span] = []
    labels: dict[int, str] = {}
    first = 0
    ran_jobs = placed.run(fabric, every, LEAST_STEPS)
    for one, ready, ran in zip(jobs, placed.ready, ran_jobs, strict=True):
        spans += [
            span._replace(rank=span.rank + first) for step in ran.ended for span in step.spans
        ]
        said = _lanes(ready)
        labels |= {first + lane: f"{one.name}: {text}" for lane, text in enumerate(said)}
        first += len(said)
    meta = {
        "system": system.name,
        "plan": " | ".join(f"{one.name}: {one.plan.label()}" for one in jobs),
        "contention": "tier C, jobs that share a fabric",
        "rank_labels": labels,
    }
    return Timeline(spans=ordered(spans), meta=meta), link_curves(fabric, seen)


def _beside(placed: _Placed, place: int, alone: float, seconds: list[float]) -> JobBeside:
    one, ready = placed.jobs[place], placed.ready[place]
    same = all(value == alone for value in seconds)
    return JobBeside(
        name=one.name,
        plan=one.plan,
        nodes=one.nodes,
        closed=ready.alone,
        alone=alone,
        together=alone if same else float(np.mean(seconds)),
        longest=max(seconds),
        steps=len(seconds),
    )


def _lanes(ready: AnyReady) -> list[str]:
    """What each lane of a job shows."""
    if isinstance(ready, MixedReady):
        return list(ready.labels.values())
    return [f"rank {rank}" for rank in range(ready.plan.pp)]


def _devices(one: JobAt, per_node: int, taken: dict[int, int]) -> tuple[int, ...]:
    """The device of each rank of a job; `taken` counts the devices of each node in use."""
    cluster = one.job.cluster
    each = cluster.system.devices_per_node
    if len(one.nodes) != cluster.num_nodes:
        raise InputError(
            f"{one.name} has cluster.nodes={cluster.num_nodes}, and {len(one.nodes)} nodes are "
            f"listed for it: {', '.join(map(str, one.nodes))}; list {cluster.num_nodes}"
        )
    found = free_devices(one.nodes, each, per_node, taken, one.name)
    for node in one.nodes:
        taken[node] = taken.get(node, 0) + each
    order = cluster.placement or range(len(found))
    return tuple(found[place] for place in order)


def _ready(one: JobAt, graph: Graph, devices: Sequence[int], system: System) -> AnyReady:
    """A job's step with its ranks on devices of the shared graph."""
    own = replace(graph, devices=np.array(devices, dtype=np.int64))
    whole = intact(one.job, one.plan) or build_graph(one.job.cluster)
    ready = any_ready(one.job, one.plan, own, whole)
    node_of = np.arange(len(graph.devices)) // system.devices_per_node
    kinds = stream_kinds(graph, one.streams, sorted(devices), node_of)
    return replace(ready, sent={**ready.sent, **kinds})
