"""Prices of each class of replicas: what its own kinds of node say.

Each kind is priced as if all nodes were of it (`Job.on`), and a class takes what its own says:

    action         device and links of its kind; of several in one tensor-parallel group the slowest
    message        the slower of the two kinds that it joins
    gradients      the slowest kind that the data-parallel group touches (`Reach`)
    gather         what the class that ends last does not hide (`_awaited`)
    norm, tied     the slowest kind of all, or of the two ranks

so that nodes of equal kinds have equal prices, to the bit. A listed slow rank's kernels take so
many times as long: its actions less what they wait for and copy, and its update.

Leaves out: that in a group of several kinds another one may be the slowest in each kernel; that a
collective's latency is that of its own links only in part; kinds whose nodes hold different numbers
of devices see groups placed as on nodes of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace

import numpy as np

from parsim.arrays import Array
from parsim.cluster.hardware import System
from parsim.cost.job import Job, Reach
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.plan_layers import layers_of
from parsim.cost.step.stages import per_rank
from parsim.cost.step.step import StepCosts, late_by_stage, step_costs
from parsim.plan import PlanTable
from parsim.schedule import Schedule
from parsim.sim.step.replica_classes import DevicesOfRanks, ReplicaClasses
from parsim.sim.step.schedule_costs import SplitCosts, on_schedule

View = tuple[int, int, int]
"""The group that a device is of, and the groups its shards and its copies touch, as bits."""

ONLY: View = (0, 0, 0)
"""The view of nodes of one kind, whatever groups they are in."""

_FORWARD = ("forward", "exposed_forward", "copied_forward")
_BACKWARD = ("backward", "exposed_backward", "recomputed", "weight", "copied_backward")


class Pricing:
    """Prices of one plan on each kind of node, computed when asked for and kept."""

    def __init__(
        self,
        job: Job,
        table: PlanTable,
        schedule: Schedule,
        world: int,
        layers: Sequence[LayerTable] = (),
    ) -> None:
        """Prepare to price.

        Args:
            job: model, cluster, software.
            table: the plan as a table of one row.
            schedule: its actions (with any number of micro-batches).
            world: bits of the groups that the plan uses.
            layers: layer costs on each group's nodes, where known.
        """
        self.job, self.table, self.schedule, self.world = job, table, schedule, world
        self._layers = dict(enumerate(layers))
        self._costs: dict[View, StepCosts] = {}
        self._late: dict[View, Array] = {}

    def layers(self, group: int) -> LayerTable:
        """Layer costs on the nodes of a group."""
        if group not in self._layers:
            self._layers[group] = layers_of(self.job_on(group), self.table)
        return self._layers[group]

    def costs(self, view: View) -> StepCosts:
        """The step's costs as if all devices were of the view's group."""
        view = view if self.job.mixed else ONLY
        if view not in self._costs:
            job, layers = self.viewed(view), self.layers(view[0])
            costs = step_costs(job, self.table, layers)
            self._costs[view] = on_schedule(job, self.table, layers, costs, self.schedule)
        return self._costs[view]

    def late(self, view: View) -> Array:
        """What each stage's last backward loses to the reduction beside it, (S,)."""
        view = view if self.job.mixed else ONLY
        if view not in self._late:
            job, layers, costs = self.viewed(view), self.layers(view[0]), self.costs(view)
            self._late[view] = late_by_stage(job, self.table, layers, costs)[:, 0]
        return self._late[view]

    def viewed(self, view: View) -> Job:
        """The job as if all devices were of the view's group."""
        group, shard, replicate = view
        reach = Reach(
            shard=self._systems(shard),
            replicate=self._systems(replicate),
            world=self._systems(self.world),
        )
        return self.job_on(group, reach)

    def job_on(self, group: int, reach: Reach | None = None) -> Job:
        """The job as if all nodes were of a group's kind: itself, where they are."""
        if not self.job.mixed:
            return self.job
        return self.job.on(self.job.cluster.systems[group], reach)

    def _systems(self, bits: int) -> tuple[System, ...]:
        """The kinds of node of a set of groups, each once."""
        systems = [self.job.cluster.systems[group] for group in groups_in(bits)]
        return tuple(system for i, system in enumerate(systems) if system not in systems[:i])


def groups_in(bits: int) -> list[int]:
    """The numbers of a set of groups."""
    return [number for number in range(int(bits).bit_length()) if bits >> number & 1]


def class_costs(pricing: Pricing, devices: DevicesOfRanks, classes: ReplicaClasses) -> StepCosts:
    """Costs of each class of replicas: one column each, as of so many plans."""
    columns = [
        [views_of(devices, rank, int(replica)) for rank in range(devices.pp)]
        for replica in classes.first
    ]
    views = {view for column in columns for row in column for view in row}
    if len(views) == len(columns) == 1:
        costs = pricing.costs(views.pop())
    else:
        costs = _composed(pricing, devices, classes, columns)
    slowness = devices.slowness[:, classes.first]
    return costs if bool((slowness == 1.0).all()) else _slowed(costs, pricing.schedule, slowness)


def _slowed(costs: StepCosts, schedule: Schedule, slowness: Array) -> StepCosts:
    """Costs on devices whose kernels take so many times as long, (p, C)."""
    stages = slowness[list(schedule.stage_rank)]
    if isinstance(costs, SplitCosts):
        costs = replace(costs, weight=costs.weight * stages)
    return replace(
        costs,
        forward=costs.forward + (stages - 1.0) * (costs.forward - costs.exposed_forward),
        backward=costs.backward + (stages - 1.0) * (costs.backward - costs.exposed_backward),
        recomputed=costs.recomputed * stages,
        optimizer=costs.optimizer * slowness,
    )


def views_of(devices: DevicesOfRanks, rank: int, replica: int) -> list[View]:
    """The kinds of a rank's devices, each with what its data-parallel groups touch."""
    shard, copies = int(devices.shard[rank, replica]), int(devices.replicate[rank, replica])
    return [(group, shard, copies) for group in groups_in(devices.groups[rank, replica])]


def _composed(
    pricing: Pricing,
    devices: DevicesOfRanks,
    classes: ReplicaClasses,
    columns: list[list[list[View]]],
) -> StepCosts:
    """Take each price from the kind of node that decides it."""
    rank_of = pricing.schedule.stage_rank
    first = pricing.costs(columns[0][0][0])
    values = {field.name: getattr(first, field.name) for field in fields(first)}
    values |= _actions(pricing, columns, values)
    values["hop"] = _hops(pricing, devices, classes, values["hop"])
    values["bucket_time"] = _reductions(pricing, devices, len(columns))
    every = [pricing.costs(view) for view in sorted({v for c in columns for r in c for v in r})]
    for name in ("optimizer", "gather"):
        values[name] = np.array([_slowest(pricing, column, name) for column in columns]).T
    batches = devices.microbatches[classes.first]
    values["gather"] = _awaited(values["gather"], batches * _rank_seconds(values, devices.pp))
    ends = [column[rank_of[0]] + column[rank_of[-1]] for column in columns]
    values["tied"] = np.array([max(_value(pricing, view, "tied") for view in two) for two in ends])
    alike = np.ones(len(columns))
    for name in ("buckets", "parameters", *(["copies"] if first.copies is not None else [])):
        values[name] = values[name] * alike
    values["norm"] = alike * max(float(costs.norm[0]) for costs in every)
    values["straggler"] = alike * max(float(costs.straggler[0]) for costs in every)
    values["late"] = alike * _latest(pricing, columns)
    values["overlap_reduce"] = all(costs.overlap_reduce for costs in every)
    return type(first)(**values)


def _latest(pricing: Pricing, columns: list[list[list[View]]]) -> float:
    """What the last backwards of the stage that loses most lose to the reduction beside them."""
    return max(
        float(pricing.late(view)[stage])
        for column in columns
        for stage, rank in enumerate(pricing.schedule.stage_rank)
        for view in column[rank]
    )


def _value(pricing: Pricing, view: View, name: str) -> float:
    return float(getattr(pricing.costs(view), name)[0])


def _slowest(pricing: Pricing, column: list[list[View]], name: str) -> list[float]:
    """Seconds of each pipeline rank, of the slowest of its kinds; (p,)."""
    return [
        max(float(getattr(pricing.costs(view), name)[rank, 0]) for view in views)
        for rank, views in enumerate(column)
    ]


def _rank_seconds(values: Mapping[str, Array], pp: int) -> Array:
    """Seconds in which each pipeline rank computes a micro-batch, (p, C)."""
    return per_rank(values["forward"] + values["backward"], pp)


def _awaited(gather: Array, computing: Array) -> Array:
    """What of each class's gather the step shows: all wait for the class that ends last, (p, C).

    max over classes of g - (max c - c), where a class computes for c seconds and its first forwards
    leave g of the gather to be seen: the gradients' reduction has the others wait anyway.
    """
    waiting = computing.max(axis=1, keepdims=True) - computing
    return np.broadcast_to((gather - waiting).max(axis=1, keepdims=True), gather.shape)


def _actions(
    pricing: Pricing, columns: list[list[list[View]]], like: Mapping[str, Array | None]
) -> dict[str, Array]:
    """Forward and backward of each stage with those of their parts that costs `like` these have.

    (S, C) each, of the slowest kind.
    """
    values: dict[str, Array] = {}
    for whole, *parts in (_FORWARD, _BACKWARD):
        names = [whole, *(name for name in parts if like.get(name) is not None)]
        slowest = [
            [_slowest_view(pricing, column[rank], whole, stage) for column in columns]
            for stage, rank in enumerate(pricing.schedule.stage_rank)
        ]
        for name in names:
            rows = [
                [float(getattr(costs, name)[stage, 0]) for costs in row]
                for stage, row in enumerate(slowest)
            ]
            values[name] = np.array(rows)
    return values


def _slowest_view(pricing: Pricing, views: Sequence[View], price: str, stage: int) -> StepCosts:
    """Costs of the kind of node on which a stage's price is the highest."""
    every = (pricing.costs(view) for view in views)
    return max(every, key=lambda costs: float(getattr(costs, price)[stage, 0]))


def _hops(pricing: Pricing, devices: DevicesOfRanks, classes: ReplicaClasses, like: Array) -> Array:
    """The message behind each stage, at the slower of the kinds it joins, (S, C)."""
    rank_of, hops = pricing.schedule.stage_rank, np.zeros((len(like), len(classes.first)))
    for column, replica in enumerate(classes.first):
        for stage in range(len(like) - 1):
            ends = devices.groups[list(rank_of[stage : stage + 2]), replica]
            kinds = groups_in(int(ends[0]) | int(ends[1]))
            alone = (pricing.costs((group, 1 << group, 1 << group)) for group in kinds)
            hops[stage, column] = max(float(costs.hop[stage, 0]) for costs in alone)
    return hops


def _reductions(pricing: Pricing, devices: DevicesOfRanks, classes: int) -> Array:
    """A gradient bucket of each stage, which all its replicas reduce together, (S, C)."""
    rows = []
    for stage, rank in enumerate(pricing.schedule.stage_rank):
        views = {view for r in range(devices.dp) for view in views_of(devices, rank, r)}
        rows.append(max(float(pricing.costs(view).bucket_time[stage, 0]) for view in views))
    return np.repeat(np.array(rows)[:, None], classes, axis=1)
