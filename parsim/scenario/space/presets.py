"""Presets of a search: how large a space is where its keys do not say it."""

from __future__ import annotations

from typing import Any, Final

from parsim.cost.job import Job
from parsim.plan import Recompute
from parsim.plan.rules import SCHEDULE_NAMES
from parsim.plan.space import Between

COMMON_SCHEDULES: Final = ("1f1b", "interleaved_1f1b")
"""What most stacks with pipelines have."""


def preset(name: str, job: Job) -> dict[str, Any]:
    """Values of a space's fields.

    `standard` is every legal value with the stack's schedules. `quick` keeps tensor
    parallelism inside a node, has micro-batches of 1, 2 and 4, at most 4 virtual stages, no ZeRO-2
    and no context parallelism. `full` adds shards over a part of the
    replicas (HSDP), activations of half and of all layers in the
    host's memory, and the schedules that the stack lacks but parsim knows, unless the stack is
    the executor, which runs what it runs.
    """
    if name == "quick":
        inside = Between(most=max(system.devices_per_node for system in job.cluster.systems))
        schedules = [known for known in COMMON_SCHEDULES if known in job.software.schedules]
        return {
            "tp": inside,
            "cp": (1,),
            "microbatch_size": (1, 2, 4),
            "v": Between(most=4),
            "zero_stage": Between(excluded=(2,)),
            "recompute": (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL),
            **({"schedule": tuple(schedules)} if schedules else {}),
        }
    if name == "full":
        every = job.software.schedules if job.software.executor else SCHEDULE_NAMES
        return {"hybrid": True, "schedule": tuple(every), "offload_layers": None}
    return {}
