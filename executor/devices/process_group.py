"""The group of all ranks that torchrun started, and what each rank of a group says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch.distributed as dist

T = TypeVar("T")


@contextmanager
def process_group(backend: str, timeout_seconds: float) -> Iterator[None]:
    """Join the group that torchrun describes, and leave it."""
    dist.init_process_group(backend, timeout=timedelta(seconds=timeout_seconds))
    try:
        yield
    finally:
        dist.destroy_process_group()


def gathered(value: T, group: dist.ProcessGroup | None = None) -> list[T]:
    """What the ranks of a group, or all of them, gave; every one of them must call it."""
    values: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(values, value, group=group)
    return values
