"""What contention costs a step: tier C on shared links beside tier B, and which link is full."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from parsim.cluster.topology import Graph, build_graph
from parsim.cost.job import Job
from parsim.cost.legal import check_legal
from parsim.cost.stages import LayerTable
from parsim.plan import Plan, PlanTable
from parsim.sim.contended_step import ContendedStep, exchanges, parts_of
from parsim.sim.evaluate import evaluate
from parsim.sim.fair_share import Array
from parsim.sim.simulate import plan_shape
from parsim.sim.step_traffic import StepTraffic, step_traffic
from parsim.timeline import Timeline, ordered

Watch = Callable[[float, Array], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassUse:
    """Seconds in which any link of a class carried something, and all that it can."""

    link_class: str
    busy: float
    saturated: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bottleneck:
    """The link that was full longest, seconds; `alike` links carry the same traffic."""

    link: str
    link_class: str
    saturated: float
    alike: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkCurve:
    """Share of its rate that the busiest link of a class carries, from each time to the next."""

    link_class: str
    times: tuple[float, ...]
    used: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contention:
    """A step with shared links (`step_time`) and without (`alone`, tier B's), seconds."""

    plan: Plan
    alone: float
    step_time: float
    bottleneck: Bottleneck | None
    classes: tuple[ClassUse, ...]

    @property
    def slowdown(self) -> float:
        """Step time with contention over that without: 1 where nothing is slower."""
        return self.step_time / self.alone

    def to_json(self) -> dict[str, Any]:
        """The block `contention` of `parsim simulate --json`."""
        worst = self.bottleneck
        return {
            "step_time_s": self.step_time,
            "slowdown": self.slowdown,
            "bottleneck": worst
            and {
                "link": worst.link,
                "class": worst.link_class,
                "saturated_s": worst.saturated,
                "links_alike": worst.alike,
            },
            "classes": [
                {"class": one.link_class, "busy_s": one.busy, "saturated_s": one.saturated}
                for one in self.classes
            ],
        }


def simulate_contention(
    job: Job,
    plan: Plan,
    *,
    graph: Graph | None = None,
    whole: Graph | None = None,
) -> Contention:
    """Run one plan's step in tier C on the links of its cluster.

    Args:
        job: model, cluster, software.
        plan: a legal plan.
        graph: the cluster's links, where they are already made or others than the cluster's.
        whole: the links on which the closed forms hold; those of `graph` with nothing failed.

    Raises:
        PlanError: the plan is not legal.
        CatalogError: the cluster's fabric cannot be built.
        CertificateError: unfair rates (a bug of parsim).
    """
    ran = _run(job, plan, graph or build_graph(job.cluster), whole or _whole(job))
    return Contention(
        plan=plan,
        alone=ran.alone,
        step_time=ran.step.step_time,
        bottleneck=_bottleneck(ran.traffic, ran.step),
        classes=_class_uses(ran.step),
    )


def contended_timeline(job: Job, plan: Plan) -> tuple[Timeline, tuple[LinkCurve, ...]]:
    """What every rank does when on shared links, and how much is carried meanwhile.

    Raises:
        PlanError: the plan is not legal.
        CatalogError: the cluster's fabric cannot be built.
    """
    seen: list[tuple[float, Array]] = []
    graph = build_graph(job.cluster)
    ran = _run(job, plan, graph, _whole(job), lambda now, loads: seen.append((now, loads)))
    times = tuple(now for now, _ in seen)
    used = np.array([loads for _, loads in seen]) / ran.traffic.flows.capacity
    of = np.array(ran.traffic.classes)
    curves = tuple(
        LinkCurve(link_class=name, times=times, used=tuple(used[:, of == name].max(axis=1)))
        for name in ran.step.classes
    )
    meta = {
        "model": job.model.name,
        "system": job.system.name,
        "plan": plan.label(),
        "step_time_s": ran.step.step_time,
        "contention": "tier C on shared links",
    }
    return Timeline(spans=ordered(ran.step.spans), meta=meta), curves


class _Ran(NamedTuple):
    alone: float
    traffic: StepTraffic
    step: ContendedStep


def _run(
    job: Job, plan: Plan, graph: Graph, whole: Graph | None, watch: Watch | None = None
) -> _Ran:
    check_legal(job, plan)
    table = PlanTable.of([plan])
    layers = LayerTable.of(job, table)
    found = evaluate(job, table, plan_shape(plan), layers)
    schedule, costs = found.graph.schedule, found.costs
    traffic = step_traffic(job, plan, costs, schedule.stage_rank, graph, whole)
    inside, parts = exchanges(job, plan, layers, costs), parts_of(job, plan, layers, costs)
    step = ContendedStep(schedule, costs, traffic, inside, parts, watch)
    step.run()
    return _Ran(float(found.step_time[0]), traffic, step)


def _class_uses(step: ContendedStep) -> tuple[ClassUse, ...]:
    columns = (step.classes, step.links.class_busy, step.links.class_saturated)
    return tuple(
        ClassUse(link_class=name, busy=float(busy), saturated=float(full))
        for name, busy, full in zip(*columns, strict=True)
    )


def _whole(job: Job) -> Graph | None:
    """The graph with nothing broken and ranks in order, where the job's is another."""
    cluster = job.cluster
    if not cluster.failed and cluster.placement is None:
        return None
    return build_graph(replace(cluster, failed=(), placement=None))


def _bottleneck(traffic: StepTraffic, step: ContendedStep) -> Bottleneck | None:
    """Longest full; among equals the one that carried most for its rate."""
    links = step.links
    if not len(links.busy):
        return None
    used = links.load / traffic.flows.capacity
    worst = int(np.lexsort((used, links.saturated))[-1])
    return Bottleneck(
        link=traffic.names[worst],
        link_class=traffic.classes[worst],
        saturated=float(links.saturated[worst]),
        alike=traffic.folded[worst],
    )
