"""Presets of a search: how large a space is where its keys do not say it."""

from __future__ import annotations

from typing import Any

from parsim.cost.job import Job
from parsim.space.axes import AXES


def preset(name: str, job: Job) -> dict[str, Any]:
    """Values of a space's axes, by name; those that the preset leaves as they are not among them.

    `standard` is every legal value with the stack's schedules. `quick` keeps tensor
    parallelism inside a node, has micro-batches of 1, 2 and 4, at most 4 virtual stages, no ZeRO-2
    and no context parallelism. `full` adds shards over a part of the replicas (HSDP), activations
    of half and of all layers of a stage in the host's memory, as few recomputed layers as each plan
    needs to fit, the schedules that the stack lacks
    but parsim knows, unless the stack is the executor, which runs what it runs, and every value
    of the settings (`axes.py`).
    """
    values = {axis.name: axis.presets[name](job) for axis in AXES if name in axis.presets}
    return {name: value for name, value in values.items() if value is not None}
