"""Brings what the ranks recorded onto one clock and into one Timeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from executor.clocks import clock_offsets
from parsim.timeline import Flow, Span, Timeline, ordered


def gather_timeline(
    spans: Sequence[Span],
    notes: Mapping[str, float],
    *,
    group: dist.ProcessGroup,
    device: torch.device,
) -> Timeline | None:
    """The spans of all ranks of a group, seconds from the first one's start; None but on rank 0.

    Every rank gives its own spans, on its own clock, and some numbers about itself, which are put
    into `meta` as lists by rank. `meta["clock_error_s"]` is how far a rank may be shifted at most
    against rank 0.
    """
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    rows: list[Any] | None = [None] * size if rank == 0 else None
    offsets = clock_offsets(group, device)
    root = dist.get_global_rank(group, 0)
    dist.gather_object((tuple(spans), dict(notes)), rows, dst=root, group=group)
    if rows is None or offsets is None:
        return None
    aligned = [
        span._replace(start=span.start - offset.seconds, end=span.end - offset.seconds)
        for (own, _), offset in zip(rows, offsets, strict=True)
        for span in own
    ]
    meta: dict[str, Any] = {name: [row[1][name] for row in rows] for name in notes}
    meta["clock_error_s"] = [offset.error for offset in offsets]
    return _timeline(aligned, size, device, meta)


def _timeline(
    spans: list[Span], ranks: int, device: torch.device, meta: dict[str, Any]
) -> Timeline:
    first = min((span.start for span in spans), default=0.0)
    shifted = ordered(s._replace(start=s.start - first, end=s.end - first) for s in spans)
    labels = {str(rank): f"pp {rank}" for rank in range(ranks)}
    return Timeline(
        spans=shifted,
        flows=tuple(_flows(shifted)),
        meta={
            "source": "measured",
            "device": device.type,
            "ranks": "pipeline ranks",
            "rank_labels": labels,
            **meta,
        },
    )


def _flows(spans: tuple[Span, ...]) -> Iterator[Flow]:
    """Arrows from each send to the wait for it."""
    number = {(s.kind, s.stage, s.microbatch): i for i, s in enumerate(spans)}
    for i, span in enumerate(spans):
        if span.kind in ("SEND_F", "SEND_B"):
            stage = span.stage + (1 if span.kind == "SEND_F" else -1)
            target = number.get((span.kind.replace("SEND", "RECV"), stage, span.microbatch))
            if target is not None:
                yield Flow(i, target)
