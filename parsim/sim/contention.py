"""What contention costs a step: tier C on shared links beside tier B, and which link is full."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from parsim.cluster.background import Background, check_network
from parsim.cluster.topology import Graph, build_graph
from parsim.cluster.topology.storage import with_storage
from parsim.cost.job import Job
from parsim.plan import Plan
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
from parsim.sim.ready_step import ReadyStep, ready_step
from parsim.sim.repeated_steps import Ran, RepeatedSteps, stream_kinds, stream_role
from parsim.sim.stream_cost import StreamCost, links_of, periodic_cost
from parsim.timeline import Timeline, ordered

NOTHING = Background()


@dataclass(frozen=True, slots=True, kw_only=True)
class Contention:
    """A step with shared links (`step_time`) and without (`alone`, tier B's), seconds.

    With background streams `step_time` is the mean step, and `quiet` the one without them.
    """

    plan: Plan
    alone: float
    step_time: float
    bottleneck: Bottleneck | None
    classes: tuple[ClassUse, ...]
    quiet: float | None = None
    streams: tuple[StreamCost, ...] = ()

    @property
    def slowdown(self) -> float:
        """Step time with contention over that without: 1 where nothing is slower."""
        return self.step_time / self.alone

    def to_json(self) -> dict[str, Any]:
        """The block `contention` of `parsim simulate --json`."""
        found: dict[str, Any] = {
            "step_time_s": self.step_time,
            "slowdown": self.slowdown,
            "bottleneck": self.bottleneck and self.bottleneck.to_json(),
            "classes": [one.to_json() for one in self.classes],
        }
        if self.streams:
            found["without_background_s"] = self.quiet
            found["background"] = [one.to_json() for one in self.streams]
        return found


def simulate_contention(
    job: Job,
    plan: Plan,
    *,
    graph: Graph | None = None,
    whole: Graph | None = None,
    background: Background = NOTHING,
    slow: Mapping[int, float] | None = None,
) -> Contention:
    """Run one plan's step in tier C on the links of its cluster.

    Args:
        job: model, cluster, software.
        plan: a legal plan.
        graph: the cluster's links, where they are already made or others than the cluster's.
        whole: the links on which the closed forms hold; those of `graph` with nothing failed.
        background: traffic beside the step.
        slow: ranks whose compute takes so many times as long.

    Raises:
        PlanError: the plan is not legal.
        CatalogError: the cluster's fabric cannot be built, or has no way for a stream.
        CertificateError: unfair rates (a bug of parsim).
    """
    graph = _links(job, graph or build_graph(job.cluster), background)
    ready = ready_step(job, plan, graph, whole or intact(job, background), slow)
    if not background.streams:
        ran, fabric = _one(ready, graph)
        return _found(ready, ran, fabric)
    quiet, _ = _one(ready, graph)
    return _beside(job, graph, ready, background, quiet.seconds)


def _beside(
    job: Job, graph: Graph, ready: ReadyStep, background: Background, quiet: float
) -> Contention:
    """The mean step beside all streams."""
    streams = background.streams
    kinds = stream_kinds(graph, streams, _devices(job, graph), job.system.devices_per_node)
    ready = replace(ready, sent={**ready.sent, **kinds})
    fabric = Fabric([ready.sent], graph)
    steps = RepeatedSteps(fabric, ready, 0, streams)
    steps.start()
    fabric.env.run(until=steps.until(1))
    fabric.links.settle()
    steady = steps.ended[0].seconds
    costs = [
        periodic_cost(graph, ready, streams, place, steady, kinds[stream_role(place)])
        if one.every > 1
        else _steady(fabric, steps, place, steady)
        for place, one in enumerate(streams)
    ]
    later = sum(one.cost for one in costs if one.stream.every > 1)
    found = _found(ready, steps.ended[0], fabric)
    return replace(found, step_time=steady + later, quiet=quiet, streams=tuple(costs))


def _steady(fabric: Fabric, steps: RepeatedSteps, place: int, step: float) -> StreamCost:
    """A stream of every step: its cost stands in the step time."""
    seconds = steps.took.get(place)
    return StreamCost(
        stream=steps.streams[place],
        seconds=seconds,
        steps=1.0 if seconds is None else seconds / step,
        cost=0.0,
        overdue=False,
        bottleneck=bottleneck(fabric, links_of(fabric, place)),
    )


def contended_timeline(
    job: Job,
    plan: Plan,
    *,
    background: Background = NOTHING,
    slow: Mapping[int, float] | None = None,
) -> tuple[Timeline, tuple[LinkCurve, ...]]:
    """What every rank does when on shared links, and how much is carried meanwhile.

    Periodic streams begin with the step.

    Raises:
        PlanError: the plan is not legal.
        CatalogError: the cluster's fabric cannot be built.
    """
    seen: list[tuple[float, Array]] = []
    graph = _links(job, build_graph(job.cluster), background)
    ready = ready_step(job, plan, graph, intact(job, background), slow)
    kinds = stream_kinds(
        graph, background.streams, _devices(job, graph), job.system.devices_per_node
    )
    sent = {**ready.sent, **kinds}
    fabric = Fabric([sent], graph, lambda now, loads: seen.append((now, loads)))
    steps = RepeatedSteps(fabric, ready, 0, background.streams)
    steps.start()
    for place, one in enumerate(background.streams):
        if one.every > 1:
            steps.stream(place)
    fabric.env.run(until=steps.until(1))
    ran = steps.ended[0]
    meta = {
        "model": job.model.name,
        "system": job.system.name,
        "plan": plan.label(),
        "step_time_s": ran.seconds,
        "contention": "tier C on shared links",
    }
    return Timeline(spans=ordered(ran.spans), meta=meta), link_curves(fabric, seen)


def intact(job: Job, background: Background = NOTHING) -> Graph | None:
    """The graph with nothing broken and ranks in order, where the job's is another."""
    cluster = job.cluster
    if not cluster.failed and cluster.placement is None:
        return None
    return _links(job, build_graph(replace(cluster, failed=(), placement=None)), background)


def _links(job: Job, graph: Graph, background: Background) -> Graph:
    """The graph, with storage where streams need it."""
    check_network(background, job.system.network is not None, job.system.id)
    if not background.needs_storage:
        return graph
    return with_storage(graph, background.storage_bandwidth or 0.0)


def _devices(job: Job, graph: Graph) -> list[int]:
    """The devices that hold ranks."""
    return sorted(graph.devices.tolist())[: job.cluster.num_devices]


def _one(ready: ReadyStep, graph: Graph) -> tuple[Ran, Fabric]:
    """One step with nothing beside it."""
    fabric = Fabric([ready.sent], graph)
    steps = RepeatedSteps(fabric, ready)
    steps.start()
    fabric.env.run(until=steps.until(1))
    fabric.links.settle()
    return steps.ended[0], fabric


def _found(ready: ReadyStep, ran: Ran, fabric: Fabric) -> Contention:
    return Contention(
        plan=ready.plan,
        alone=ready.alone,
        step_time=ran.seconds,
        bottleneck=bottleneck(fabric),
        classes=class_uses(fabric),
    )
