"""Brings what the ranks recorded onto one clock and into one Timeline."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from parsim.timelines.kinds import SpanKind, Stream
from parsim.timelines.timeline import Flow, Span, Timeline, ordered

ROUNDS = 8


class Offset(NamedTuple):
    """A peer's clock minus rank 0's, and the largest error that this can have; seconds."""

    seconds: float
    error: float


def clock_offsets(group: dist.ProcessGroup, device: torch.device) -> list[Offset] | None:
    """The offset of each rank of the group; None but on rank 0. Every rank must call it.

    Rank 0 sends a question, the peer answers with its clock. The answer was given somewhere between
    question and arrival, so the middle of the two is wrong by at most half the round trip; of
    several rounds the shortest counts (Cristian, Distributed Computing 3, 1989).
    """
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


_SENT = {SpanKind.RECV_F: (SpanKind.SEND_F, -1), SpanKind.RECV_B: (SpanKind.SEND_B, 1)}
"""The action that sends what is received, and where its stage lies from the receiving one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlace:
    """Where a rank of the gathered ones stands.

    Ranks of the same `pipeline` number are one pipeline: messages go between these. Those of the
    same `pair` in it add up gradients of parameters that both hold. `name` stands beside the rank's
    row in pictures; without one that is its pipeline rank.
    """

    pipeline_rank: int
    pipeline: int = 0
    pair: int = 0
    name: str = ""


def gather_timeline(
    spans: Sequence[Span],
    notes: Mapping[str, float],
    rank_place: RankPlace,
    *,
    group: dist.ProcessGroup,
    device: torch.device,
) -> Timeline | None:
    """The spans of all ranks of a group, seconds from the first one's start; None but on rank 0.

    Every rank gives its own spans, on its own clock, and some numbers about itself, which are put
    into `meta` as lists by rank. `meta["clock_error_s"]` is how far a rank may be shifted at most
    against rank 0, `meta["pipeline_rank"]` tells each rank's pipeline rank, and
    `meta["pipeline"]` which ranks are one pipeline.
    """
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    rows: list[Any] | None = [None] * size if rank == 0 else None
    offsets = clock_offsets(group, device)
    root = dist.get_global_rank(group, 0)
    dist.gather_object((tuple(spans), dict(notes), rank_place), rows, dst=root, group=group)
    if rows is None or offsets is None:
        return None
    spans_of, notes_of, places = zip(*rows, strict=True)
    aligned = [
        span._replace(start=span.start - offset.seconds, end=span.end - offset.seconds)
        for of_rank, offset in zip(spans_of, offsets, strict=True)
        for span in of_rank
    ]
    meta: dict[str, Any] = {name: [of_rank[name] for of_rank in notes_of] for name in notes}
    meta["clock_error_s"] = [offset.error for offset in offsets]
    return assemble(aligned, places, {"device": device.type, **meta})


def assemble(
    spans: Iterable[Span], places: Sequence[RankPlace], meta: Mapping[str, Any]
) -> Timeline:
    """One timeline of spans on one clock; `places` are those of the ranks 0, 1, ..."""
    known = list(spans)
    first = min((span.start for span in known), default=0.0)
    shifted = ordered(s._replace(start=s.start - first, end=s.end - first) for s in known)
    shifted = tuple(_met(shifted, places))
    flows = tuple(_flows(shifted, places))
    names = [rank_place.name or f"pp {rank_place.pipeline_rank}" for rank_place in places]
    return Timeline(
        spans=_received(shifted, flows),
        flows=flows,
        meta={
            "source": "measured",
            "ranks": "global ranks",
            "rank_labels": {str(i): name for i, name in enumerate(names)},
            "pipeline_rank": {str(i): p.pipeline_rank for i, p in enumerate(places)},
            "pipeline": {str(i): p.pipeline for i, p in enumerate(places)},
            **meta,
        },
    )


def _met(spans: Iterable[Span], places: Sequence[RankPlace]) -> Iterator[Span]:
    """A sum of the gradients of two ranks begins when both are there.

    They are at different places of the pipeline: what one waits for the other before is a bubble.
    """
    known = list(spans)
    sums = list(_numbered(known, places))
    begins: dict[tuple[int, ...], float] = {}
    for span, which in zip(known, sums, strict=True):
        if which:
            begins[which] = max(begins.get(which, 0.0), span.start)
    for span, which in zip(known, sums, strict=True):
        if which:
            start = min(max(span.start, begins[which]), span.end)
            yield span._replace(start=start, exposed=min(span.exposed, span.end - start))
        else:
            yield span


def _numbered(spans: Iterable[Span], places: Sequence[RankPlace]) -> Iterator[tuple[int, ...]]:
    """Name the pair of ranks that add up gradients in each span, and the number of the sum."""
    sums = Counter[int]()
    for span in spans:
        if span.kind == SpanKind.REDUCE_TIED:
            yield (places[span.rank].pipeline, places[span.rank].pair, sums[span.rank])
            sums[span.rank] += 1
        else:
            yield ()


def _flows(spans: tuple[Span, ...], places: Sequence[RankPlace]) -> Iterator[Flow]:
    """Arrows from each send to the wait for it, within a pipeline."""
    number = {
        (places[s.rank].pipeline, s.kind, s.stage, s.microbatch): i
        for i, s in enumerate(spans)
        if s.stream == Stream.SEND
    }
    pairs = []
    for i, span in enumerate(spans):
        if span.kind in _SENT:
            kind, side = _SENT[span.kind]
            key = (places[span.rank].pipeline, kind, span.stage + side, span.microbatch)
            if key in number:
                pairs.append(Flow(number[key], i))
    yield from sorted(pairs)


def _received(spans: tuple[Span, ...], flows: Iterable[Flow]) -> tuple[Span, ...]:
    """Count as communication only what of a wait for a message lies behind its sending.

    Before that the peer still computes, and the wait is a bubble of the schedule.
    """
    received = list(spans)
    for source, target in flows:
        wait = received[target]
        exposed = wait.end - max(wait.start, received[source].start)
        received[target] = wait._replace(exposed=min(max(exposed, 0.0), wait.duration))
    return tuple(received)
