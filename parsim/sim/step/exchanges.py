"""Exposed communication inside actions, by what it is: exchanges of ranks that share a stage."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from parsim.arrays import Array, ratio
from parsim.cost.job import Job
from parsim.cost.step.costs import StepCosts
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.offload import copy_seconds, moved_bytes
from parsim.cost.step.stage_passes import backward_times, forward_times
from parsim.cost.step.stages import layer_counts
from parsim.cost.step.step import deeper_pass, repeated_layers, stage_cut
from parsim.plan import Plan, PlanTable, Recompute
from parsim.schedule import Kind
from parsim.sim.step.kept_bytes import eviction_seconds
from parsim.sim.step.priced_step import PricedStep
from parsim.sim.step.schedule_costs import exposed_seconds

_BACKWARD = (Kind.B, Kind.I, Kind.W)


def exchanges(job: Job, plan: Plan, layers: LayerTable, costs: StepCosts) -> dict[Kind, Array]:
    """Exposed seconds of tensor and context exchanges in each kind of action, (S,).

    In a backward in two they are in I, for they are of the gradient of the inputs; what I is too
    short for stands in W, as in `exposed_seconds` (stage 0 of PyTorch has no I at all).
    """
    table = PlanTable.of([plan])
    counts = layer_counts(job.model, stage_cut(job, table))
    ahead = forward_times(job, layers, counts).exposed[:, 0]
    deeper = deeper_pass(job, table, layers)
    behind = backward_times(job, layers, counts, deeper).exposed[:, 0]
    inner = np.minimum(behind, exposed_seconds(costs)[Kind.I][: len(behind), 0])
    return {Kind.F: ahead, Kind.B: behind, Kind.I: inner, Kind.W: behind - inner}


def class_exchanges(step: PricedStep, number: int) -> dict[Kind, Array]:
    """Exposed exchanges in the actions of a class, each stage's on its own kind of node, (S,)."""
    costs = step.column(number)
    groups = [step.group(rank, number) for rank in step.schedule(number).stage_rank]
    by_group = {
        group: exchanges(step.job_on(group), step.plan, step.pricing.layers(group), costs)
        for group in set(groups)
    }
    depth = step.schedule(number).depth
    return {
        kind: np.array([by_group[group][kind][stage % depth] for stage, group in enumerate(groups)])
        for kind in (Kind.F, *_BACKWARD)
    }


def class_copies(step: PricedStep, number: int) -> dict[Kind, Array]:
    """Seconds in which each stage's activations go to its kind of host or to a partner, and back.

    (S,) each; a processor finds its copies where they are.
    """
    table, cut = step.pricing.table, stage_cut(step.job_on(0), step.pricing.table)
    groups = [step.group(rank, number) for rank in step.schedule(number).stage_rank]
    by_group = {}
    for group in set(groups):
        job, layers = step.job_on(group), step.pricing.layers(group)
        host = copy_seconds(job, moved_bytes(job, table, layers, cut))[:, 0]
        partner = eviction_seconds(job, table, layers, step.schedule(number))[:, 0]
        by_group[group] = np.maximum(host, partner[: len(host)])
    depth = step.schedule(number).depth
    copies = np.array([by_group[group][stage % depth] for stage, group in enumerate(groups)])
    to_host = step.schedule(number).limit is None
    in_place = to_host and step.job_on(groups[0]).system.on_cpu
    return {Kind.F: copies, Kind.B: copies * (not in_place)}


def copied_seconds(costs: StepCosts) -> dict[Kind, Array] | None:
    """What shows of copies to the host and back in each kind of action, (S,), if there are any."""
    if costs.copied_forward is None or costs.copied_backward is None:
        return None
    return {Kind.F: costs.copied_forward[:, 0], Kind.B: costs.copied_backward[:, 0]}


def routed_shares(job: Job, plan: Plan, layers: LayerTable) -> Mapping[Kind, Array]:
    """Shares of the exposed exchanges that are all-to-alls of experts, (S,) by kind of action.

    Full recomputation exchanges tokens again before gradients are exchanged.
    """
    table = PlanTable.of([plan])
    counts = layer_counts(job.model, stage_cut(job, table))
    whole, deeper = repeated_layers(job, table), deeper_pass(job, table, layers)
    again = 1.0 + float(plan.recompute is Recompute.FULL)
    pairs = list(zip(layers.kinds, layers.recomputed, strict=True))
    routed = counts @ np.array([kind.routed.exposed[0] for kind in layers.kinds])
    ahead = counts @ np.array([kind.forward.exposed[0] for kind in layers.kinds])
    behind = counts @ np.array([kind.backward.exposed[0] + more.exposed[0] for kind, more in pairs])
    returned = again * routed
    if whole is not None and deeper is not None:
        behind = behind + deeper.exposed[:, 0]
        returned += whole[:, :, 0] @ np.array([kind.routed.exposed[0] for kind in layers.kinds])
    for stage, end in ((0, layers.before), (-1, layers.behind)):
        ahead[stage] += end.forward.exposed[0]
        behind[stage] += end.backward.exposed[0]
    forward = np.minimum(ratio(routed, ahead), 1.0)
    backward = np.minimum(ratio(returned, behind), 1.0)
    return {Kind.F: forward} | dict.fromkeys(_BACKWARD, backward)
