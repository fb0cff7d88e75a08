"""Which plans the devices of a machine can hold: how many ranks, and what fits instead."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

from executor.devices.machine import SHARING_NCCL, SHARING_VARIABLE, DeviceReport
from parsim.errors import InputError
from parsim.launch.nodes import Nodes
from parsim.plan import Plan
from parsim.plan.rules.degrees import divisors
from parsim.plan.stages import stage_words


def most_ranks(report: DeviceReport) -> int:
    """How many ranks can run here: a GPU each unless they can share it, some to a core."""
    return report.count if not report.shareable else max(16, 4 * report.count)


def check_world(plan: Plan, report: DeviceReport, *, oversubscribe: bool) -> None:
    """Refuse a plan that this machine cannot hold.

    Raises:
        InputError: more ranks than devices, and sharing them was not asked for or cannot be.
    """
    here = Nodes(count=report.nodes).share(plan.world_size)
    if here <= report.count or (oversubscribe and report.shareable):
        return
    fit = _what_fits(plan, report)
    ranks = f"world size {plan.world_size} ({_degrees(plan)})"
    if report.nodes > 1:
        ranks += f" on {report.nodes} nodes, {here} on each,"
    raise InputError(
        f"{ranks} is more than the {report.count} {_devices(report)} of this machine; {fit}; "
        f"{_way_out(report)}"
    )


def _what_fits(plan: Plan, report: DeviceReport) -> str:
    if plan.stages is not None:
        return f"use stages whose replicas x tp sum to {report.count * report.nodes} at most"
    smaller = largest_fitting(plan, report.count, nodes=report.nodes)
    return f"what fits: {_degrees(smaller)} = {smaller.world_size}"


def largest_fitting(plan: Plan, count: int, *, nodes: int = 1) -> Plan:
    """Return the plan with the most ranks, up to `count` a node, whose degrees divide this one's.

    Among equals the one that changes tensor parallelism least, then pipeline, then sharding.
    """
    names = ("tp", "pp", "dp_shard", "dp_replicate", "cp")
    degrees = itertools.product(*(divisors(plan.degree(name)) for name in names))
    sizes = [(math.prod(each), *each) for each in degrees]
    fitting = [size for size in sizes if size[0] <= count * nodes and size[0] % nodes == 0]
    _, tp, pp, shard, copies, cp = max(fitting, default=(plan.world_size, *map(plan.degree, names)))
    best = replace(plan, tp=tp, pp=pp, dp_shard=shard, dp_replicate=copies, cp=cp)
    return _settled(best)


def _settled(plan: Plan) -> Plan:
    """Take back what needs a degree above 1 that is gone."""
    if plan.dp_shard * plan.cp == 1:
        plan = replace(plan, zero_stage=0)
    if plan.tp == 1:
        plan = replace(plan, sequence_parallel=False)
    if plan.pp == 1 and plan.schedule == "interleaved_1f1b":
        plan = replace(plan, schedule="1f1b", v=1, stage_layers=None)
    return plan


def _degrees(plan: Plan) -> str:
    if plan.stages is not None:
        return stage_words(plan.stages, plan.tp)
    return f"pp={plan.pp} x dp={plan.dp} x cp={plan.cp} x tp={plan.tp}"


def _devices(report: DeviceReport) -> str:
    single = report.count == 1
    if report.kind == "cpu":
        return "CPU core" if single else "CPU cores"
    return "GPU" if single else "GPUs"


def _way_out(report: DeviceReport) -> str:
    if report.shareable:
        return "or share the devices among ranks with --oversubscribe"
    return (
        f"or run on the CPU with --oversubscribe (one GPU holds one rank, unless NCCL is "
        f"{'.'.join(map(str, SHARING_NCCL))} or newer and {SHARING_VARIABLE}=1)"
    )
