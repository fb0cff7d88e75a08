"""What a step loses on shared links: run there as events, and beside it as if links were free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from parsim.cluster.background import Background, Stream, check_network
from parsim.cluster.groups import device_nodes, level_devices
from parsim.cluster.topology import Graph, build_graph
from parsim.cluster.topology.storage import with_storage
from parsim.cost.job import Job
from parsim.plan import Plan
from parsim.sim.contention.link_use import (
    Bottleneck,
    ClassUse,
    LinkCurve,
    LoadHistory,
    bottleneck,
    class_uses,
    link_curves,
)
from parsim.sim.contention.stream_cost import StreamCost, periodic_cost, stream_path
from parsim.sim.events.fabric import Fabric
from parsim.sim.events.ready_step import ReadyStep, ready_step
from parsim.sim.events.repeated_steps import Ran, RepeatedSteps, stream_kinds
from parsim.sim.step.lanes import has_classes, lane_labels, lanes_in_words
from parsim.timelines.timeline import Timeline, ordered

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
        document: dict[str, Any] = {
            "step_time_s": self.step_time,
            "slowdown": self.slowdown,
            "bottleneck": self.bottleneck and self.bottleneck.to_json(),
            "classes": [use.to_json() for use in self.classes],
        }
        if self.streams:
            document["without_background_s"] = self.quiet
            document["background"] = [cost.to_json() for cost in self.streams]
        return document


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
        graph: the links, where they are built already or others than the cluster's.
        whole: the links on which the closed forms hold; those of `graph` with nothing failed.
        background: traffic beside the step.
        slow: ranks whose compute takes so many times as long.

    Raises:
        PlanError: the plan is not legal.
        CatalogError: the cluster's fabric cannot be built, or has no way for a stream.
        CertificateError: unfair rates (a bug of parsim).
    """
    graph = fabric_links(job, graph or placed_graph(job, plan), background)
    ready = ready_step(job, plan, graph, whole or intact(job, plan, background), slow)
    alone = _started(ready, graph)
    fabric = _one_step(alone)
    if not background.streams:
        return _contention(ready, alone.ended[0], fabric)
    return _beside_streams(job, graph, ready, background, alone.ended[0].seconds)


def _beside_streams(
    job: Job, graph: Graph, ready: ReadyStep, background: Background, quiet: float
) -> Contention:
    """The mean step beside all streams."""
    streams, ready = background.streams, _with_streams(job, graph, ready, background)
    steps = _started(ready, graph, streams)
    fabric = _one_step(steps)
    steady = steps.ended[0].seconds
    costs = [
        periodic_cost(graph, ready, streams, index, steady)
        if stream.every > 1
        else StreamCost.in_the_step(
            stream, steps.took.get(index), steady, bottleneck(fabric, stream_path(fabric, index))
        )
        for index, stream in enumerate(streams)
    ]
    periodic = sum(cost.cost for cost in costs if cost.stream.every > 1)
    contention = _contention(ready, steps.ended[0], fabric)
    return replace(contention, step_time=steady + periodic, quiet=quiet, streams=tuple(costs))


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
    history: LoadHistory = []
    graph = fabric_links(job, placed_graph(job, plan), background)
    ready = ready_step(job, plan, graph, intact(job, plan, background), slow)
    ready = _with_streams(job, graph, ready, background)
    steps = _started(ready, graph, background.streams, history)
    steps.periodic_streams()
    fabric = _one_step(steps)
    ran = steps.ended[0]
    meta = {
        "model": job.model.name,
        "system": job.cluster.words if job.mixed else job.system.name,
        "plan": plan.label(),
        "step_time_s": ran.seconds,
        "contention": "tier C on shared links",
    }
    if has_classes(ready.step):
        meta |= {"ranks": lanes_in_words(ready.step), "rank_labels": lane_labels(ready.step)}
    return Timeline(spans=ordered(ran.spans), meta=meta), link_curves(fabric, history)


def intact(job: Job, plan: Plan, background: Background = NOTHING) -> Graph | None:
    """The graph with nothing broken and ranks in order, where the job's is another.

    On a mixed cluster the ranks of each kind are in order on nodes of that kind.
    """
    cluster = job.cluster
    if not cluster.failed and cluster.placement is None:
        return None
    graph = build_graph(replace(cluster, failed=(), placement=None))
    if job.mixed:
        graph = graph.placed(level_devices(cluster, plan.node_order).tolist())
    return fabric_links(job, graph, background)


def placed_graph(job: Job, plan: Plan) -> Graph:
    """The cluster's links with the plan's ranks on their devices."""
    return build_graph(job.cluster, order=plan.node_order)


def fabric_links(job: Job, graph: Graph, background: Background) -> Graph:
    """The graph, with storage where streams need it."""
    system = job.cluster.system  # of a mixed cluster the first: all have a network, or none has
    check_network(background, system.network is not None, system.id)
    if not background.needs_storage:
        return graph
    return with_storage(graph, background.storage_bandwidth or 0.0)


def placed_devices(job: Job, graph: Graph) -> list[int]:
    """The devices that hold ranks."""
    return sorted(graph.devices.tolist())[: job.cluster.num_devices]


def _with_streams(job: Job, graph: Graph, ready: ReadyStep, background: Background) -> ReadyStep:
    """The step with what its plan's streams send among its traffic."""
    devices, node_of = placed_devices(job, graph), device_nodes(job.cluster)
    kinds = stream_kinds(graph, background.streams, devices, node_of)
    return replace(ready, sent={**ready.sent, **kinds})


def _started(
    ready: ReadyStep,
    graph: Graph,
    streams: Sequence[Stream] = (),
    history: LoadHistory | None = None,
) -> RepeatedSteps:
    """Begin steps beside streams; `history` takes the loads of links."""
    watch = None if history is None else lambda now, loads: history.append((now, loads))
    steps = RepeatedSteps(Fabric([ready.sent], graph, watch), ready, 0, streams)
    steps.start()
    return steps


def _one_step(steps: RepeatedSteps) -> Fabric:
    """Run to the end of the first step, and settle the account of the links."""
    fabric = steps.fabric
    fabric.env.run(until=steps.until(1))
    fabric.links.settle()
    return fabric


def _contention(ready: ReadyStep, ran: Ran, fabric: Fabric) -> Contention:
    """One step beside tier B's, and the links that it filled."""
    return Contention(
        plan=ready.plan,
        alone=ready.alone,
        step_time=ran.seconds,
        bottleneck=bottleneck(fabric),
        classes=class_uses(fabric),
    )
