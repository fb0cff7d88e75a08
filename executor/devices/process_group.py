"""The group of all ranks that torchrun started, and what each rank of a group says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

T = TypeVar("T")


@contextmanager
def process_group(
    backend: str, timeout_seconds: float, device: torch.device | None = None
) -> Iterator[None]:
    """Join the group that torchrun describes, and leave it.

    A GPU's rank names its `device`: NCCL then connects at once, a mesh's groups are split off
    instead of connected anew, and a barrier does not guess where to run.
    """
    gpu = device if device is not None and device.type == "cuda" else None
    dist.init_process_group(backend, timeout=timedelta(seconds=timeout_seconds), device_id=gpu)
    try:
        yield
    finally:
        dist.destroy_process_group()


def gathered(value: T, group: dist.ProcessGroup | None = None) -> list[T]:
    """What the ranks of a group, or all of them, gave; every one of them must call it."""
    values: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(values, value, group=group)
    return values
