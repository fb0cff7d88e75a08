"""How far the clocks of a group's ranks are apart, by asking each one the time.

Rank 0 sends a question, the peer answers with its clock. The answer was given somewhere between
question and arrival, so the middle of the two is wrong by at most half the round trip; of several
rounds the shortest counts (Cristian, Distributed Computing 3, 1989).
"""

from __future__ import annotations

import time
from typing import NamedTuple

import torch
import torch.distributed as dist

ROUNDS = 8


class Offset(NamedTuple):
    """A peer's clock minus rank 0's, and the largest error that this can have; seconds."""

    seconds: float
    error: float


def clock_offsets(group: dist.ProcessGroup, device: torch.device) -> list[Offset] | None:
    """The offset of each rank of the group; None but on rank 0. Every rank must call it."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    if dist.get_backend(group) == "gloo":
        device = torch.device("cpu")  # its messages are of the host's memory
    dist.barrier(group)
    if rank == 0:
        return [Offset(0.0, 0.0), *(_ask(peer, group, device) for peer in range(1, size))]
    _answer(group, device)
    return None


def _ask(peer: int, group: dist.ProcessGroup, device: torch.device) -> Offset:
    target = dist.get_global_rank(group, peer)
    question = torch.zeros(1, dtype=torch.float64, device=device)
    answer = torch.zeros_like(question)
    offsets: list[Offset] = []
    for _ in range(ROUNDS):
        asked = time.perf_counter()
        dist.send(question, dst=target, group=group)
        dist.recv(answer, src=target, group=group)
        theirs = float(answer)  # waits for the device
        arrived = time.perf_counter()
        offsets.append(Offset(theirs - (asked + arrived) / 2, (arrived - asked) / 2))
    return min(offsets, key=lambda offset: offset.error)


def _answer(group: dist.ProcessGroup, device: torch.device) -> None:
    root = dist.get_global_rank(group, 0)
    question = torch.zeros(1, dtype=torch.float64, device=device)
    for _ in range(ROUNDS):
        dist.recv(question, src=root, group=group)
        float(question)  # waits for the device
        now = torch.tensor([time.perf_counter()], dtype=torch.float64, device=device)
        dist.send(now, dst=root, group=group)
