"""One plan's step, priced: its program, and seconds of every price for each class of replicas.

Equal nodes with equal batches are one class. Unlike nodes, or replicas with batches of their own,
are more: each class has a column of prices, and those with other numbers of micro-batches have a
schedule of their own. Whoever simulates, counts bytes, draws or labels reads this one record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np

from parsim.arrays import Array
from parsim.cluster.hardware import System
from parsim.cost.job import Job
from parsim.cost.step.costs import StepCosts
from parsim.cost.step.layer_table import LayerTable
from parsim.errors import InputError
from parsim.plan import Plan, PlanTable
from parsim.plan.strategies import DDP
from parsim.schedule import Schedule
from parsim.schedule.inflight import completed_stages
from parsim.sim.step.class_costs import class_costs
from parsim.sim.step.compiled_schedule import CompiledSchedule, compiled_schedule
from parsim.sim.step.pricing import Pricing, groups_in
from parsim.sim.step.replica_classes import (
    DevicesOfRanks,
    ReplicaClasses,
    SlowRanks,
    fold_replicas,
)
from parsim.strategy import STRATEGIES, StepProgram


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedStep:
    """A plan with its classes of replicas, their schedules and their prices.

    `devices` says on which kinds of node its ranks lie, `classes` which replicas are alike. `costs`
    have a column for each class, and so has `compiled` a schedule.
    """

    job: Job
    plan: Plan
    devices: DevicesOfRanks
    classes: ReplicaClasses
    pricing: Pricing
    compiled: tuple[CompiledSchedule, ...]
    costs: StepCosts
    program: StepProgram

    @property
    def num_classes(self) -> int:
        """How many classes of replicas there are, C."""
        return len(self.compiled)

    @property
    def shares(self) -> Array:
        """The share of the replicas that each class is, (C,)."""
        return np.asarray(self.classes.count / self.devices.dp)

    @property
    def meets_in_actions(self) -> bool:
        """Whether replicas of several classes exchange shards within their actions."""
        alone = len(self.classes.first) == int(self.classes.sharers.sum())
        return self.devices.shards_in_actions and not alone

    def schedule(self, number: int) -> Schedule:
        """The actions of a class."""
        return self.compiled[number].schedule

    def column(self, number: int) -> StepCosts:
        """The costs of a class."""
        return self.costs.take(np.array([number]))

    def group(self, rank: int, number: int = 0) -> int:
        """The first group of nodes that a pipeline rank of a class lies on."""
        replica = int(self.classes.first[number])
        return groups_in(self.devices.groups[rank, replica])[0]

    def job_on(self, group: int) -> Job:
        """The job as if all nodes were of a group's kind."""
        return self.pricing.job_on(group)

    def systems(self) -> dict[int, System]:
        """Each kind of node once, by the number of the first group of it."""
        systems = self.job.cluster.systems
        return {n: system for n, system in enumerate(systems) if system not in systems[:n]}


def price_step(
    job: Job,
    plan: Plan,
    *,
    layers: Sequence[LayerTable] = (),
    classes: ReplicaClasses | None = None,
    by_kind: bool = False,
    slow_ranks: SlowRanks = (),
) -> PricedStep:
    """Find a plan's classes of replicas and price each of them.

    Args:
        job: model, cluster, software.
        plan: a legal plan.
        layers: layer costs on each group's nodes, where known.
        classes: which replicas are alike; None: folded as far as they are.
        by_kind: whether groups of equal nodes count as one.
        slow_ranks: ranks of the plan whose kernels take so many times as long.

    Raises:
        InputError: the plan is simulated by itself alone, with a strategy's program or as tasks.
    """
    _check_alike(plan)
    devices = DevicesOfRanks.of(job.cluster, plan, by_kind=by_kind, slow_ranks=slow_ranks)
    classes = classes or fold_replicas(devices)
    counts = devices.microbatches[classes.first].tolist()
    schedules = {count: _compiled(plan, count) for count in sorted(set(counts))}
    by_class = tuple(schedules[count] for count in counts)
    pricing = Pricing(job, PlanTable.of([plan]), by_class[0].schedule, devices.world, layers)
    costs = class_costs(pricing, devices, classes)
    return PricedStep(
        job=job,
        plan=plan,
        devices=devices,
        classes=classes,
        pricing=pricing,
        compiled=by_class,
        costs=costs,
        program=program_of([compiled.schedule for compiled in by_class], costs),
    )


def _check_alike(plan: Plan) -> None:
    """Refuse a plan whose step is not that of alike stages which flush."""
    if plan.runs_own_program:
        raise InputError(
            f"strategy.name={plan.strategy.name} is simulated with its own links and jitter alone "
            f"(parsim simulate, timeline, guide); jobs beside one another are for name=ddp"
        )
    if plan.runs_as_tasks:
        what = f"schedule={plan.schedule}" if plan.stages is None else "stages of their own"
        raise InputError(
            f"a plan with {what} is simulated by itself alone (parsim simulate, timeline); shared "
            f"links, jitter steps and searches are for stages that are alike and flush"
        )


def _compiled(plan: Plan, microbatches: int) -> CompiledSchedule:
    name, pp, _, v = plan_shape(plan)
    return compiled_schedule(
        name, pp, microbatches, v, actions=plan.actions, times=plan.action_times
    )


def plan_shape(plan: Plan) -> tuple[str, int, int, int]:
    """(schedule, pp, micro-batches, v); without a pipeline every schedule is the same loop."""
    return (plan.schedule if plan.pp > 1 else "1f1b", plan.pp, plan.num_microbatches, plan.v)


def program_of(schedules: Sequence[Schedule], costs: StepCosts) -> StepProgram:
    """The program of a step with these schedules, a class of replicas each."""
    return STRATEGIES[DDP.name].program(
        schedules,
        completed_stages(schedules[0]),
        beside=costs.overlap_reduce,
        blocking=costs.blocking_p2p,
        tied=bool((costs.tied > 0.0).any()),
        copies=costs.copies is not None,
    )


def prices_of(costs: StepCosts) -> Mapping[str, Array]:
    """All seconds of a step by the names that its program calls them."""
    values = {field.name: getattr(costs, field.name) for field in fields(costs)}
    return {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
