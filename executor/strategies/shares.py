"""Who serves which share of the weights, and how messages are told apart."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from parsim.plan.strategies import Servers


class Share(NamedTuple):
    """One server: the rank whose process it is in, and what part of the flat weights it holds."""

    rank: int
    part: slice

    @property
    def size(self) -> int:
        """How many values."""
        return int(self.part.stop - self.part.start)


def shares(strategy: Servers, values: int, workers: int) -> list[Share]:
    """So many flat weights over the servers: nearly equal parts, spread evenly over the ranks.

    Unless their number is given there is one on each host, or beside each worker (`on: devices`).
    """
    count = strategy.servers or (hosts(workers) if strategy.on == "hosts" else workers)
    ends = [0]
    for part in torch.empty(values, device="meta").tensor_split(count):
        ends.append(ends[-1] + part.numel())
    return [
        Share(number * workers // count, slice(begin, end))
        for number, (begin, end) in enumerate(pairwise(ends))
    ]


def hosts(workers: int) -> int:
    """How many machines so many workers are on, as torchrun counts them."""
    return max(workers // int(os.environ.get("LOCAL_WORLD_SIZE", str(workers))), 1)


def pulled(cuts: Sequence[Share], mine: dict[int, Tensor], device: torch.device) -> Tensor:
    """All shares at every rank, each from its server; every rank must call it."""
    parts = []
    for number, share in enumerate(cuts):
        values = mine[number] if number in mine else torch.empty(share.size, device=device)
        dist.broadcast(values, src=share.rank)
        parts.append(values)
    return torch.cat(parts)
