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
from parsim.cost.step.costs import StepCosts
from parsim.cost.step.stages import per_rank
from parsim.schedule import Schedule
from parsim.sim.step.pricing import Pricing, View, groups_in, views_of
from parsim.sim.step.replica_classes import DevicesOfRanks, ReplicaClasses
from parsim.sim.step.schedule_costs import SplitCosts

_FORWARD = ("forward", "exposed_forward", "copied_forward")
_BACKWARD = ("backward", "exposed_backward", "recomputed", "weight", "copied_backward")


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
    alone = ["copies"] if first.copies is not None else []
    for name in ("buckets", "parameters", "trained", *alone):
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
