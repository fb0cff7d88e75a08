"""What travels between workers and servers in step: each message from its sender to its receiver.

    push    every worker sends each share of its gradient to the share's server
    pull    every server sends its share of the weights to each worker

All messages are on their way at once, so that servers on several ranks send and receive beside
each other; a rank sends nothing to itself.
"""

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


Rooms = dict[int, dict[int, Tensor]]
"""Where a server's messages are received: by the share's index and the worker that sends it."""


def push(pieces: Sequence[Share], messages: Sequence[Tensor], rooms: Rooms) -> None:
    """Send the messages of all shares to their servers; those for this rank are in `rooms` then.

    Args:
        pieces: all shares.
        messages: what this rank sends of each of them.
        rooms: for each share that this rank serves, a tensor for every other rank's message.
    """
    sends = [
        dist.P2POp(dist.isend, message, share.rank, tag=index)
        for index, (share, message) in enumerate(zip(pieces, messages, strict=True))
        if index not in rooms
    ]
    receipts = [
        dist.P2POp(dist.irecv, room, worker, tag=index)
        for index, room_of in rooms.items()
        for worker, room in room_of.items()
    ]
    _wait(_begin([*sends, *receipts]))


def pull(pieces: Sequence[Share], mine: Mapping[int, Tensor], weights: Tensor) -> None:
    """Write all shares into the weights of every rank, each from its server; every rank calls it.

    Args:
        pieces: all shares.
        mine: the weights of the shares that this rank serves, by their index in `pieces`.
        weights: the vector that the shares are parts of.
    """
    sends = [
        dist.P2POp(dist.isend, values, worker, tag=index)
        for index, values in mine.items()
        for worker in others()
    ]
    receipts = [
        dist.P2POp(dist.irecv, weights[share.part], share.rank, tag=index)
        for index, share in enumerate(pieces)
        if index not in mine
    ]
    begun = _begin([*sends, *receipts])
    for index, values in mine.items():  # beside the messages
        weights[pieces[index].part].copy_(values)
    _wait(begun)


def others() -> list[int]:
    """All ranks but this one, in order."""
    return [rank for rank in range(dist.get_world_size()) if rank != dist.get_rank()]


def _begin(messages: list[dist.P2POp]) -> list[dist.Work]:
    return dist.batch_isend_irecv(messages) if messages else []


def _wait(begun: list[dist.Work]) -> None:
    """Wait until all messages have come and gone."""
    for message in begun:
        message.wait()
