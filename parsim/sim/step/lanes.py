"""What the lanes of a plan's timeline are called: pipeline ranks, of one class or of several."""

from __future__ import annotations

from parsim.cost.job import Job
from parsim.sim.step.priced_step import PricedStep
from parsim.sim.step.pricing import groups_in


def lanes_in_words(step: PricedStep) -> str:
    """What the lanes of a plan's timeline are."""
    if has_classes(step):
        return "pipeline ranks of each class of replicas that behave alike"
    return "pipeline ranks (tensor- and data-parallel peers behave alike)"


def has_classes(step: PricedStep) -> bool:
    """Whether replicas may differ: by their nodes, their micro-batches, or listed slow ranks."""
    slow = bool((step.devices.slowness != 1.0).any())
    return step.job.mixed or step.plan.replica_microbatches is not None or slow


def lane_labels(step: PricedStep) -> dict[str, str]:
    """The name of each lane: its rank, and of several classes its nodes and replicas."""
    pp = step.plan.pp
    if not has_classes(step):
        return {str(rank): f"pp {rank}" for rank in range(pp)}
    return {
        str(number * pp + rank): class_label(step, number, rank)
        for number in range(step.num_classes)
        for rank in range(pp)
    }


def class_label(step: PricedStep, number: int, rank: int) -> str:
    """Rank, kind of node, how slow, and how many replicas do so: pp 0 fast x2."""
    replica = int(step.classes.first[number])
    groups = groups_in(int(step.devices.groups[rank, replica]))
    names = "+".join(group_name(step.job, group) for group in groups)
    slowness = float(step.devices.slowness[rank, replica])
    slow = f" ({slowness:g} times as long)" if slowness != 1.0 else ""
    return f"pp {rank} {names}{slow} x{int(step.classes.count[number])}"


def group_name(job: Job, group: int) -> str:
    """The name of a group of nodes; nodes that are all alike are called by their system."""
    return job.cluster.groups[group].name if job.cluster.groups else job.cluster.system.id
