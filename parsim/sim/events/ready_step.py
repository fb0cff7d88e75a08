"""A plan's step, ready to run as events on shared links: its classes, and their traffic.

Groups of equal nodes count as one kind here, so that their step is that of one kind to the bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from parsim.arrays import Index
from parsim.cluster.groups import device_nodes, in_groups, level_devices
from parsim.cluster.topology import Graph
from parsim.cost.job import Job
from parsim.cost.legal import check_legal
from parsim.errors import InputError
from parsim.plan import Plan
from parsim.sim.events.class_run import (
    ClassRun,
    RunnableStep,
    check_shards_apart,
    runnable,
)
from parsim.sim.events.traffic_parts import DecidingKinds
from parsim.sim.recurrence.evaluate import evaluate
from parsim.sim.step.priced_step import PricedStep
from parsim.sim.traffic.class_traffic import class_traffic
from parsim.sim.traffic.mesh_groups import group_ranks, replica_of
from parsim.sim.traffic.step_traffic import Role, Sent

_ASKED = "shared links (--contention, --beside, background, cluster.failed, jitter.slow_ranks)"
"""What asks for tier C."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyStep:
    """One plan's step for shared links: `alone` is tier B's step time, `sent` all its traffic."""

    step: PricedStep
    run: RunnableStep
    alone: float
    sent: Mapping[Role, Sent]

    @property
    def plan(self) -> Plan:
        """What is run."""
        return self.step.plan


def ready_step(
    job: Job,
    plan: Plan,
    graph: Graph,
    whole: Graph | None = None,
    slow: Mapping[int, float] | None = None,
) -> ReadyStep:
    """Price one plan and find its traffic.

    Args:
        job: model, cluster, software.
        plan: a legal plan.
        graph: the links, with the job's ranks on their devices.
        whole: the links on which the closed forms hold, where `graph` is not it.
        slow: ranks whose compute takes so many times as long.

    Raises:
        PlanError: the plan is not legal.
        InputError: replicas of different classes exchange shards in every pass.
    """
    check_legal(job, plan)
    evaluation = evaluate(job, plan, by_kind=True, memory=False)
    step = evaluation.step
    _check_apart(step)
    runs = tuple(
        ClassRun.of(
            step.schedule(number),
            step.column(number),
            _slow(step, number, slow or {}),
            DecidingKinds(step, number).parts(),
        )
        for number in range(step.num_classes)
    )
    return ReadyStep(
        step=step,
        run=runnable(step, runs),
        alone=evaluation.step_time,
        sent=class_traffic(step, graph, whole or graph, _node_of(job, plan)),
    )


def _node_of(job: Job, plan: Plan) -> Index | None:
    """The node of each rank, where replicas may differ."""
    if not job.mixed and plan.replica_microbatches is None:
        return None
    cluster = in_groups(job.cluster)
    return device_nodes(cluster)[level_devices(cluster, plan.node_order)]


def _check_apart(step: PricedStep) -> None:
    plan = step.plan
    if step.schedule(0).copies > 1:
        raise InputError(
            f"{_ASKED}: schedule={plan.schedule} has two copies of the model, whose exchange is "
            f"not simulated on links that others share; use another schedule, or leave shared "
            f"links out"
        )
    if plan.ep > 1 and step.num_classes > 1:
        raise InputError(
            f"{_ASKED}: ep={plan.ep} has replicas that differ exchange tokens with one another's "
            f"experts, which tier C does not simulate; use ep=1, give all replicas equal nodes "
            f"and batches, or leave shared links out"
        )
    check_shards_apart(step, _ASKED, "shared links")


def _slow(step: PricedStep, number: int, slow: Mapping[int, float]) -> tuple[float, ...]:
    """The factor of the slowest device of each pipeline rank of a class: its replicas wait."""
    plan = step.plan
    if not slow:
        return (1.0,) * plan.pp
    replica, class_of = replica_of(plan), step.classes.class_of
    rows = group_ranks(plan, ("tp",)).reshape(plan.pp, -1).tolist()
    return tuple(
        max([
            1.0,
            *(slow[rank] for rank in ranks if rank in slow and class_of[replica[rank]] == number),
        ])
        for ranks in rows
    )  # fmt: skip
