"""What contention costs a step: tier C on shared links beside tier B, and which link is full."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from parsim.cluster.background import Background, check_network
from parsim.cluster.mixed import device_nodes, level_devices
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
from parsim.sim.mixed_ready import MixedReady, mixed_ready
from parsim.sim.ready_step import ready_step
from parsim.sim.repeated_steps import AnyReady, Ran, RepeatedSteps, stream_kinds, stream_role
from parsim.sim.simulate import differ
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
    graph = _links(job, graph or placed_graph(job, plan), background)
    ready = any_ready(job, plan, graph, whole or intact(job, plan, background), slow)
    if not background.streams:
        ran, fabric = _one(ready, graph)
        return _found(ready, ran, fabric)
    quiet, _ = _one(ready, graph)
    return _beside(job, graph, ready, background, quiet.seconds)


def _beside(
    job: Job, graph: Graph, ready: AnyReady, background: Background, quiet: float
) -> Contention:
    """The mean step beside all streams."""
    streams = background.streams
    kinds = stream_kinds(graph, streams, _devices(job, graph), device_nodes(job.cluster))
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
    graph = _links(job, placed_graph(job, plan), background)
    ready = any_ready(job, plan, graph, intact(job, plan, background), slow)
    kinds = stream_kinds(graph, background.streams, _devices(job, graph), device_nodes(job.cluster))
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
        "system": job.cluster.words if job.mixed else job.system.name,
        "plan": plan.label(),
        "step_time_s": ran.seconds,
        "contention": "tier C on shared links",
    }
    if isinstance(ready, MixedReady):
        meta["ranks"] = "pipeline ranks of each class of replicas that behave alike"
        meta["rank_labels"] = dict(ready.labels)
    return Timeline(spans=ordered(ran.spans), meta=meta), link_curves(fabric, seen)


def intact(job: Job, plan: Plan, background: Background = NOTHING) -> Graph | None:
    """The graph with nothing broken and ranks in order, where the job's is another.

    On a mixed cluster the ranks of each kind are in order on nodes of that kind.
    """
    cluster = job.cluster
    if not cluster.failed and cluster.placement is None:
        return None
    made = build_graph(replace(cluster, failed=(), placement=None))
    if job.mixed:
        made = made.placed(level_devices(cluster, plan.node_order).tolist())
    return _links(job, made, background)


def placed_graph(job: Job, plan: Plan) -> Graph:
    """The cluster's links with the plan's ranks on their devices."""
    return build_graph(job.cluster, order=plan.node_order)


def any_ready(
    job: Job,
    plan: Plan,
    graph: Graph,
    whole: Graph | None,
    slow: Mapping[int, float] | None = None,
) -> AnyReady:
    """The step, a column for each class of replicas where they differ."""
    made = mixed_ready if differ(job, plan) else ready_step
    return made(job, plan, graph, whole, slow)


def _links(job: Job, graph: Graph, background: Background) -> Graph:
    """The graph, with storage where streams need it."""
    system = job.cluster.system  # of a mixed cluster the first: all have a network, or none has
    check_network(background, system.network is not None, system.id)
    if not background.needs_storage:
        return graph
    return with_storage(graph, background.storage_bandwidth or 0.0)


def _devices(job: Job, graph: Graph) -> list[int]:
    """The devices that hold ranks."""
    return sorted(graph.devices.tolist())[: job.cluster.num_devices]


def _one(ready: AnyReady, graph: Graph) -> tuple[Ran, Fabric]:
    """One step with nothing beside it."""
    fabric = Fabric([ready.sent], graph)
    steps = RepeatedSteps(fabric, ready)
    steps.start()
    fabric.env.run(until=steps.until(1))
    fabric.links.settle()
    return steps.ended[0], fabric


def _found(ready: AnyReady, ran: Ran, fabric: Fabric) -> Contention:
    return Contention(
        plan=ready.plan,
        alone=ready.alone,
        step_time=ran.seconds,
        bottleneck=bottleneck(fabric),
        classes=class_uses(fabric),
    )
