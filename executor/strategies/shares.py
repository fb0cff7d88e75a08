"""Who serves which share of the weights, and how messages are told apart."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
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


def pull(pieces: Sequence[Share], mine: Mapping[int, Tensor], weights: Tensor) -> None:
    """Write all shares into the weights of every rank, each from its server; every rank calls it.

    Args:
        pieces: all shares.
        mine: the weights of the shares that this rank serves, by their index in `pieces`.
        weights: the vector that the shares are parts of.
    """
    for index, share in enumerate(pieces):
        part = weights[share.part]
        if index in mine:
            part.copy_(mine[index])
        dist.broadcast(part, src=share.rank)
