"""Groups of ranks, calls of collectives on them, and their times: alone, and several at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from executor.devices.accelerator import accelerator
from executor.devices.all_ranks import largest
from executor.devices.event_loops import let_senders_run
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
    let_senders_run()
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
    return _shift(data, other, team)


def _shift(sent: Tensor, received: Tensor, team: Team) -> Work:
    """A message to the next rank of the group while the one before sends its own."""
    position = team.ranks.index(dist.get_rank())
    after, before = team.ranks[(position + 1) % len(team.ranks)], team.ranks[position - 1]

    def shift() -> None:
        pair = [
            dist.P2POp(dist.isend, sent, after, team.group),
            dist.P2POp(dist.irecv, received, before, team.group),
        ]
        for message in dist.batch_isend_irecv(pair):
            message.wait()

    return shift


WARMUP = 2
REPEATS = (5, 40)
CLOCK_GRAIN = 5e-3
"""Calls are repeated within one timing until they last about this long, seconds."""
LEAST_CALLS, MOST_CALLS = 2, 50


def ran(work: Work, calls: int, device: torch.device) -> tuple[float, float]:
    """When `calls` in a row began and ended on this rank, seconds.

    Processors share one clock, which tells when the last rank of all ends. A GPU's clock is its
    own: it begins at 0.
    """
    asked = accelerator(device)
    asked.synchronize()
    start = asked.mark()
    for _ in range(calls):
        work()
    end = asked.mark()
    asked.synchronize()
    return (0.0, asked.seconds(start, end)) if asked.queued else (start, end)


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Groups that run a collective at once; `work` is this rank's call, None where it waits.

    `calls` in a row are one timing, of `seconds` or so.
    """

    active: tuple[Team, ...]
    work: Work | None
    calls: int
    seconds: float


def prepared(kind: str, size: int, active: Sequence[Team], device: torch.device) -> Phase:
    """A phase after its warm-up, with as many calls a timing as all ranks agree on."""
    mine = next((team for team in active if team.joined), None)
    work = work_of(kind, size, mine, device) if mine else None
    once = 0.0
    for calls in (1, WARMUP):
        dist.barrier()
        began, ended = ran(work, calls, device) if work else (0.0, 0.0)
        once = largest((ended - began) / calls, device)
    calls = min(max(math.ceil(CLOCK_GRAIN / max(once, 1e-7)), LEAST_CALLS), MOST_CALLS)
    return Phase(active=tuple(active), work=work, calls=calls, seconds=once * calls)


def timed(
    kind: str, size: int, phases: Sequence[Sequence[Team]], budget: float, device: torch.device
) -> list[dict[str, Any]]:
    """Rows of a collective with one group active, and with all: their timings take turns.

    So a machine that gets busier meanwhile slows all of them. Rank 0 returns the rows.
    """
    ready = [prepared(kind, size, active, device) for active in phases]
    lasts = sum(phase.seconds for phase in ready)
    repeats = min(max(int(budget / max(lasts, 1e-6)), REPEATS[0]), REPEATS[1])
    every = _in_turns(ready, repeats, device)
    if dist.get_rank():
        return []
    return [
        {
            "collective": kind,
            "bytes": size,
            "groups": len(phase.active),
            **summary(every[:, i], phase.active, phase.calls),
            "repeats": repeats,
            "calls": phase.calls,
        }
        for i, phase in enumerate(ready)
    ]


def _in_turns(ready: Sequence[Phase], repeats: int, device: torch.device) -> Tensor:
    """Start and end on every rank of every phase in every turn, (ranks, phases, repeats, 2)."""
    moments: list[list[tuple[float, float]]] = [[] for _ in ready]
    for _ in range(repeats):
        for phase, times in zip(ready, moments, strict=True):
            dist.barrier()
            times.append(ran(phase.work, phase.calls, device) if phase.work else (0.0, 0.0))
    every = torch.zeros((dist.get_world_size(), len(ready), repeats, 2), dtype=torch.float64)
    every[dist.get_rank()] = torch.tensor(moments, dtype=torch.float64)
    every = every.to(device)
    dist.all_reduce(every)
    return every


def summary(times: Tensor, active: Sequence[Team], calls: int) -> dict[str, float]:
    """Median, deviation and least over repeats of a call's seconds, first start to last end.

    `times` are start and end of so many `calls` by rank and repeat, (ranks, repeats, 2).
    """
    measured = times[[rank for team in active for rank in team.ranks]]
    lasted = ((measured[..., 1].amax(dim=0) - measured[..., 0].amin(dim=0)) / calls).tolist()
    middle = median(lasted)
    mad = median(abs(x - middle) for x in lasted)
    return {"time_s": middle, "mad_s": mad, "least_s": min(lasted)}
