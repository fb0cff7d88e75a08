"""Values of axes that suit a job: its model, its nodes and its stack have a use for them."""

from __future__ import annotations

from typing import Final

from parsim.cost.job import Job
from parsim.plan import (
    RANK_ORDER,
    REPLICAS_OUTSIDE,
    CpCommType,
)
from parsim.plan.names import SCHEDULE_NAMES
from parsim.plan.rules.degrees import divisors
from parsim.plan.space import FEWEST, Between
from parsim.space.axis import module_sets

COMMON_SCHEDULES: Final = ("1f1b", "interleaved_1f1b")
"""What most stacks with pipelines have."""


def inside_a_node(job: Job) -> Between:
    """Up to as many ranks as the largest node has devices."""
    return Between(most=max(system.devices_per_node for system in job.cluster.systems))


def quick_schedules(job: Job) -> tuple[str, ...] | None:
    """Common schedules, as far as the stack has them; not said where it has none."""
    return tuple(name for name in COMMON_SCHEDULES if name in job.software.schedules) or None


def every_schedule(job: Job) -> tuple[str, ...]:
    """All schedules; of the executor those that it runs."""
    return job.software.schedules if job.software.executor else SCHEDULE_NAMES


def expert_slices(job: Job) -> tuple[int, ...]:
    """Ranks that may split each expert: divisors of its width, inside a node."""
    experts = job.model.experts
    if experts is None:
        return (1,)
    return tuple(divisors(experts.ffn_hidden_size, job.system.devices_per_node))


def rank_orders(job: Job) -> tuple[tuple[str, ...], ...]:
    """Pipeline ranks outermost, or replicas; nodes of several kinds try both by themselves."""
    if job.mixed:
        return (RANK_ORDER,)
    return (RANK_ORDER, REPLICAS_OUTSIDE)


def exchanges(job: Job) -> tuple[CpCommType, ...]:
    """The stack's own exchange of context ranks, and the two others."""
    return tuple(kind for kind in CpCommType if kind is not job.software.cp_comm_type)


def recomputed_modules(job: Job) -> tuple[tuple[str, ...], ...]:
    """Sets of parts to compute again; the executor has none of them."""
    return ((),) if job.software.executor else module_sets(job)


def recomputed_regions(job: Job) -> tuple[tuple[str, ...], ...] | None:
    """What a compiler's region may repeat; not said where modules are checkpointed one by one."""
    return module_sets(job) if job.software.recompute_region else None


def fewest_layers(job: Job) -> tuple[int, ...] | None:
    """So many that a plan fits, where a search can find that number: on nodes of one kind."""
    return None if job.mixed or job.software.checkpoints_stages else (FEWEST,)


def both(job: Job) -> tuple[bool, ...]:
    """A switch on, and off."""
    return (True, False)


def hidden(job: Job) -> tuple[bool, ...] | None:
    """Where a stack hides no collective of shards, the switch changes nothing."""
    return (True, False) if job.software.overlap > 0.0 else None
