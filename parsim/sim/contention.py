"""What contention costs a step: tier C on shared links beside tier B, and which link is full."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from parsim.cluster.topology import Graph, build_graph
from parsim.cost.job import Job
from parsim.cost.stages import LayerTable
from parsim.plan import Plan, PlanTable
from parsim.plan.rules import check_plan
from parsim.sim.contended_step import ContendedStep, exchanges, parts_of
from parsim.sim.evaluate import evaluate
from parsim.sim.fair_share import Array
from parsim.sim.simulate import plan_shape
from parsim.sim.step_traffic import StepTraffic, step_traffic

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
    watch: Watch | None = None,
) -> Contention:
    """Run one plan's step in tier C on the links of its cluster.

    Args:
        job: model, cluster, software.
        plan: a legal plan.
        graph: the cluster's links, where they are already made or others than the cluster's.
        whole: the links on which the closed forms hold; those of `graph` with nothing failed.
        watch: called with time and the load of each folded link whenever that changes.

    Raises:
        PlanError: the plan is not legal.
        CatalogError: the cluster's fabric cannot be built.
        CertificateError: unfair rates (a bug of parsim).
    """
    check_plan(plan, job.model, job.cluster)
    table = PlanTable.of([plan])
    layers = LayerTable.of(job, table)
    found = evaluate(job, table, plan_shape(plan), layers)
    schedule, costs = found.graph.schedule, found.costs
    links = graph or build_graph(job.cluster)
    traffic = step_traffic(job, plan, costs, schedule.stage_rank, links, whole or _whole(job))
    inside, parts = exchanges(job, plan, layers, costs), parts_of(job, plan, layers, costs)
    step = ContendedStep(schedule, costs, traffic, inside, parts, watch)
    step.run()
    return Contention(
        plan=plan,
        alone=float(found.step_time[0]),
        step_time=step.step_time,
        bottleneck=_bottleneck(traffic, step),
        classes=tuple(
            ClassUse(link_class=name, busy=float(busy), saturated=float(full))
            for name, busy, full in zip(
                step.classes, step.links.class_busy, step.links.class_saturated, strict=True
            )
        ),
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
