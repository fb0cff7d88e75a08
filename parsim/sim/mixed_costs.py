"""Prices of a plan on a mixed cluster: each slot's from the kinds of node that it lies on.

Every kind is priced as if all nodes were of it (`Job.on`), and a slot takes what its own kind says:

    action         device and links of its kind; of several in one tensor-parallel group the slowest
    message        the slower of the two kinds that it joins
    gradients      the slowest kind that the data-parallel group touches (`Reach`)
    norm, tied     the slowest kind of all, or of the two ranks

so that nodes of equal kinds have equal prices, to the bit.

Leaves out: that in a group of several kinds another one may be the slowest in each kernel; that a
collective's latency is that of its own links only in part; kinds whose nodes hold different numbers
of devices see groups placed as on nodes of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from parsim.cluster.hardware import System
from parsim.cost.job import Job, Reach
from parsim.cost.stages import LayerTable
from parsim.cost.step import StepCosts, late_by_stage, step_costs
from parsim.plan import PlanTable
from parsim.schedule import Schedule
from parsim.sim.own_costs import OwnCosts, own_costs
from parsim.sim.slots import Replicas, Slots

Array = NDArray[np.float64]
View = tuple[int, int, int]
"""The group that a device is of, and the groups its shards and its copies touch, as bits."""

_FORWARD = ("forward", "exposed_forward")
_BACKWARD = ("backward", "exposed_backward", "recomputed", "weight")


class Pricing:
    """Prices of one plan on each kind of node, made when asked for and kept."""

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
            job: on a mixed cluster.
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
            self._layers[group] = LayerTable.of(self._on(group, None), self.table)
        return self._layers[group]

    def costs(self, view: View) -> StepCosts:
        """The step's costs as if all devices were of the view's group."""
        if view not in self._costs:
            job, layers = self.viewed(view), self.layers(view[0])
            costs = step_costs(job, self.table, layers)
            self._costs[view] = own_costs(job, self.table, layers, costs, self.schedule)
        return self._costs[view]

    def late(self, view: View) -> Array:
        """What each stage's last backward loses to the reduction beside it, (S,)."""
        if view not in self._late:
            job, layers, costs = self.viewed(view), self.layers(view[0]), self.costs(view)
            self._late[view] = late_by_stage(job, self.table, layers, costs)[:, 0]
        return self._late[view]

    def viewed(self, view: View) -> Job:
        """The job as if all devices were of the view's group."""
        group, shard, replicate = view
        return self._on(
            group,
            Reach(
                shard=self.systems(shard),
                replicate=self.systems(replicate),
                world=self.systems(self.world),
            ),
        )

    def _on(self, group: int, reach: Reach | None) -> Job:
        return self.job.on(self.job.cluster.systems[group], reach)

    def systems(self, bits: int) -> tuple[System, ...]:
        """The kinds of node of a set, each once."""
        found = [self.job.cluster.systems[group] for group in members(bits)]
        return tuple(one for i, one in enumerate(found) if one not in found[:i])


def members(bits: int) -> list[int]:
    """The numbers of a set."""
    return [number for number in range(int(bits).bit_length()) if bits >> number & 1]


def mixed_costs(pricing: Pricing, slots: Slots, replicas: Replicas) -> StepCosts:
    """Costs of each class of replicas: one column each, as of so many plans."""
    rank_of = pricing.schedule.stage_rank
    columns = [
        [views_of(slots, rank, int(replica)) for rank in range(slots.pp)]
        for replica in replicas.first
    ]
    first = pricing.costs(columns[0][0][0])
    values = {field.name: getattr(first, field.name) for field in fields(first)}
    values |= _actions(pricing, columns, isinstance(first, OwnCosts))
    values["hop"] = _hops(pricing, slots, replicas, values["hop"])
    values["bucket_time"] = _reductions(pricing, slots, len(replicas.first))
    seen = {view for column in columns for views in column for view in views}
    every = [pricing.costs(view) for view in sorted(seen)]
    late = max(
        float(pricing.late(view)[stage])
        for column in columns
        for stage, rank in enumerate(rank_of)
        for view in column[rank]
    )
    one = np.ones(len(columns))
    for name in ("buckets", "parameters"):
        values[name] = values[name] * one
    for name in ("optimizer", "gather"):
        values[name] = np.array([_slowest(pricing, column, name) for column in columns]).T
    ends = [column[rank_of[0]] + column[rank_of[-1]] for column in columns]
    values["tied"] = np.array([max(_value(pricing, view, "tied") for view in two) for two in ends])
    values["norm"] = one * max(float(costs.norm[0]) for costs in every)
    values["straggler"] = one * max(float(costs.straggler[0]) for costs in every)
    values["late"] = one * late
    values["overlap_reduce"] = all(costs.overlap_reduce for costs in every)
    return type(first)(**values)


def views_of(slots: Slots, rank: int, replica: int) -> list[View]:
    """The kinds of a slot's devices, each with what its data-parallel groups touch."""
    shard, copies = int(slots.shard[rank, replica]), int(slots.replicate[rank, replica])
    return [(group, shard, copies) for group in members(slots.kinds[rank, replica])]


def _value(pricing: Pricing, view: View, name: str) -> float:
    return float(getattr(pricing.costs(view), name)[0])


def _slowest(pricing: Pricing, column: list[list[View]], name: str) -> list[float]:
    """Of each pipeline rank, the slowest kind's; (p,)."""
    return [
        max(float(getattr(pricing.costs(view), name)[rank, 0]) for view in views)
        for rank, views in enumerate(column)
    ]


def _actions(pricing: Pricing, columns: list[list[list[View]]], split: bool) -> dict[str, Array]:
    """Forward and backward of each stage with their parts, (S, C), of the slowest kind."""
    found: dict[str, Array] = {}
    for whole, *parts in (_FORWARD, _BACKWARD):
        names = [whole, *(name for name in parts if split or name != "weight")]
        slowest = [
            [
                max((pricing.costs(view) for view in column[rank]),
                    key=lambda costs: float(getattr(costs, whole)[stage, 0]))
                for column in columns
            ]
            for stage, rank in enumerate(pricing.schedule.stage_rank)
        ]  # fmt: skip
        for name in names:
            rows = [
                [float(getattr(costs, name)[stage, 0]) for costs in row]
                for stage, row in enumerate(slowest)
            ]
            found[name] = np.array(rows)
    return found


def _hops(pricing: Pricing, slots: Slots, replicas: Replicas, like: Array) -> Array:
    """The message behind each stage, at the slower of the kinds it joins, (S, C)."""
    rank_of, found = pricing.schedule.stage_rank, np.zeros((len(like), len(replicas.first)))
    for column, replica in enumerate(replicas.first):
        for stage in range(len(like) - 1):
            ends = slots.kinds[list(rank_of[stage : stage + 2]), replica]
            kinds = members(int(ends[0]) | int(ends[1]))
            own = (pricing.costs((group, 1 << group, 1 << group)) for group in kinds)
            found[stage, column] = max(float(costs.hop[stage, 0]) for costs in own)
    return found


def _reductions(pricing: Pricing, slots: Slots, classes: int) -> Array:
    """A gradient bucket of each stage, which all its replicas reduce together, (S, C)."""
    rows = []
    for stage, rank in enumerate(pricing.schedule.stage_rank):
        views = {view for replica in range(slots.dp) for view in views_of(slots, rank, replica)}
        rows.append(max(float(pricing.costs(view).bucket_time[stage, 0]) for view in views))
    return np.repeat(np.array(rows)[:, None], classes, axis=1)
