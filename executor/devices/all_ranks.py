"""What all ranks know together: every one's value, the largest of all. Each must call it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist

T = TypeVar("T")


def gathered(value: T, group: dist.ProcessGroup | None = None) -> list[T]:
    """What the ranks of a group, or all of them, gave."""
    values: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(values, value, group=group)
    return values


def largest(value: float, device: torch.device) -> float:
    """The largest of all ranks' values, by way of a device that their backend reduces on."""
    return largest_of_each((value,), device)[0]


def largest_of_each(values: Sequence[float], device: torch.device) -> list[float]:
    """The largest of all ranks' first values, second values, and so on; equally many of each."""
    together = torch.tensor(values, dtype=torch.float64, device=device)
    dist.all_reduce(together, op=dist.ReduceOp.MAX)
    return [float(value) for value in together]
