"""Groups of ranks, and the calls of collectives on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from executor.torch_internals.distributed import ALL_GATHER, REDUCE_SCATTER

VALUE = 4  # bytes of a float32
Work = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """One group of ranks; `joined` says whether this rank is in it."""

    ranks: tuple[int, ...]
    group: Any
    joined: bool


def teams(ranks: int, groups: int) -> list[Team]:
    """Neighbouring ranks by group; every rank makes all of them."""
    return [team(range(first, first + ranks)) for first in range(0, ranks * groups, ranks)]


def team(ranks: Sequence[int]) -> Team:
    """A group of these ranks; every rank makes it."""
    group = dist.new_group(list(ranks))
    return Team(ranks=tuple(ranks), group=group, joined=dist.get_rank() in ranks)


def work_of(kind: str, size: int, team: Team, device: torch.device) -> Work:
    """A call of one collective of S = `size` bytes on a group."""
    data = torch.zeros(size // VALUE, device=device)
    group, first = team.group, team.ranks[0]
    part = torch.zeros(max(data.numel() // len(team.ranks), 1), device=device)
    if kind == "all_reduce":
        return lambda: dist.all_reduce(data, group=group)
    if kind == "broadcast":
        return lambda: dist.broadcast(data, src=first, group=group)
    if kind == "reduce":
        return lambda: dist.reduce(data, dst=first, group=group)
    if kind == "all_gather":
        return lambda: ALL_GATHER(data, part, group=group)
    if kind == "reduce_scatter":
        return lambda: REDUCE_SCATTER(part, data, group=group)
    other = torch.zeros_like(data)
    if kind == "all_to_all":
        return lambda: dist.all_to_all_single(other, data, group=group)
    position = team.ranks.index(dist.get_rank())
    after, before = team.ranks[(position + 1) % len(team.ranks)], team.ranks[position - 1]

    def shift() -> None:
        pair = [
            dist.P2POp(dist.isend, data, after, group),
            dist.P2POp(dist.irecv, other, before, group),
        ]
        for message in dist.batch_isend_irecv(pair):
            message.wait()

    return shift
