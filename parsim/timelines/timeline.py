"""What happened when: the one record that simulator, executor and reports share.

A `Timeline` is a list of `Span`s on (rank, stream) lanes, arrows between spans, and memory
curves. All times are seconds from the first action's start, all memory is bytes. Ranks are
pipeline ranks of a folded simulation or global ranks of a measured run; `meta` says which.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from parsim.errors import InputError
from parsim.results import Result, figure_of
from parsim.timelines.kinds import SpanKind, Stream
from parsim.units import counted, format_seconds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCHEMA_VERSION = 1

STREAMS = (Stream.COMPUTE, Stream.SEND, Stream.RECV, Stream.TP, Stream.DP)
"""Lane names in drawing order; a span on another stream is drawn below these."""

ACTIONS = (SpanKind.F, SpanKind.B, SpanKind.I, SpanKind.W)
"""Kinds of compute spans that make up the pipeline phase."""


class Span(NamedTuple):
    """One thing that one stream of one rank did.

    `kind` is one of `SpanKind`, `stream` one of `Stream` or another name. `stage` and `microbatch`
    are -1 where they mean nothing. `exposed` is the part of a compute span that is communication,
    and the part of a communication span that the compute stream waited for, seconds.
    """

    rank: int
    stream: str
    kind: str
    start: float
    end: float
    stage: int = -1
    microbatch: int = -1
    exposed: float = 0.0

    @property
    def duration(self) -> float:
        """Length of the span, seconds."""
        return self.end - self.start

    @property
    def name(self) -> str:
        """Name in the schedule's text form, such as `2F0`; the bare kind where stage is -1."""
        if self.stage < 0:
            return self.kind
        return f"{self.stage}{self.kind}{self.microbatch if self.microbatch >= 0 else ''}"


class Flow(NamedTuple):
    """An arrow: span number `source` made span number `target` possible (send to receive)."""

    source: int
    target: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCurve:
    """Allocated bytes of one rank over time: `bytes[i]` holds from `times[i]` to `times[i+1]`.

    Of a predicted curve also what is in it: `static` bytes (parameters, gradients, optimizer),
    `activations` and `old_weights` (versions that a later backward needs) at each time, and the
    rest, which are buffers that stand while actions run. `parts` say by name what is static.
    """

    rank: int
    times: tuple[float, ...]
    bytes: tuple[float, ...]
    static: float = 0.0
    activations: tuple[float, ...] = ()
    parts: Mapping[str, float] = field(default_factory=dict)
    old_weights: tuple[float, ...] = ()

    @property
    def buffers(self) -> tuple[float, ...]:
        """Logits, temporary, communication buffers and gathered parameters at each time."""
        old = self.old_weights or (0.0,) * len(self.activations)
        rows = zip(self.bytes, self.activations, old, strict=bool(self.activations))
        return tuple(max(whole - self.static - kept - older, 0.0) for whole, kept, older in rows)

    def to_json(self) -> dict[str, Any]:
        """One entry of a timeline's `memory`; parts only where they are known."""
        document: dict[str, Any] = {
            "rank": self.rank,
            "times_s": list(self.times),
            "allocated_bytes": list(self.bytes),
        }
        if self.activations:
            document |= {"static_bytes": self.static, "activations_bytes": list(self.activations)}
        if self.old_weights:
            document["old_weights_bytes"] = list(self.old_weights)
        if self.parts:
            document["static_parts_bytes"] = dict(self.parts)
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> MemoryCurve:
        """Read what `to_json` wrote."""
        return cls(
            rank=document["rank"],
            times=tuple(document["times_s"]),
            bytes=tuple(document["allocated_bytes"]),
            static=document.get("static_bytes", 0.0),
            activations=tuple(document.get("activations_bytes", ())),
            parts=dict(document.get("static_parts_bytes", {})),
            old_weights=tuple(document.get("old_weights_bytes", ())),
        )


COLUMNS = ("rank", "stream", "kind", "start_s", "end_s", "stage", "microbatch", "exposed_s")
"""Names of a span's fields in files and tables."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Timeline(Result):
    """Spans in order of (rank, stream, start), arrows between them, memory over time.

    `critical` lists the numbers of the spans on the critical path, in time order.
    """

    spans: tuple[Span, ...]
    flows: tuple[Flow, ...] = ()
    memory: tuple[MemoryCurve, ...] = ()
    critical: tuple[int, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def headline(self) -> str:
        """Plan, length and size."""
        plan = str(self.meta.get("plan") or "of no named plan")
        return (
            f"{plan}: {format_seconds(self.end)}, {counted(len(self.ranks), 'rank')}, "
            f"{counted(len(self.spans), 'span')}"
        )

    @property
    def end(self) -> float:
        """End of the last span, seconds."""
        return max((span.end for span in self.spans), default=0.0)

    @property
    def ranks(self) -> tuple[int, ...]:
        """All ranks that appear, ascending."""
        return tuple(sorted({span.rank for span in self.spans}))

    def on(self, rank: int, stream: str | None = None) -> Iterator[Span]:
        """Spans of one rank (and one stream), in order."""
        for span in self.spans:
            if span.rank == rank and stream in (None, span.stream):
                yield span

    def busy(self, rank: int, stream: str = Stream.COMPUTE) -> float:
        """Seconds during which one stream of one rank did something."""
        return sum(span.duration for span in self.on(rank, stream))

    def plot(
        self,
        *,
        memory: bool = False,
        critical: bool = False,
        until: float | None = None,
        title: str | None = None,
        width: float = 14.0,
        path: Path | None = None,
    ) -> Figure:
        """Draw what every rank does when, as a matplotlib figure.

        Args:
            memory: Add a panel with allocated memory over time.
            critical: Draw a line through the spans on the critical path.
            until: End of the picture, seconds; the timeline's end where not given.
            title: Headline; none where not given.
            width: Width of the picture, inches; its height follows from the number of ranks.
            path: File to write too, `.png` or `.svg`.

        Raises:
            InputError: nothing to draw, or the file cannot be written.
        """
        return figure_of(
            self, memory=memory, critical=critical, until=until, title=title, width=width, path=path
        )

    def records(self) -> list[dict[str, Any]]:
        """One row per span."""
        return [dict(zip(COLUMNS, span, strict=True)) for span in self.spans]

    def to_json(self) -> dict[str, Any]:
        """Plain data with units in the names; `Timeline.from_json` reads it back."""
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": "timeline",
            "meta": dict(self.meta),
            "columns": list(COLUMNS),
            "spans": [list(span) for span in self.spans],
            "flows": [list(flow) for flow in self.flows],
            "memory": [curve.to_json() for curve in self.memory],
            "critical": list(self.critical),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Timeline:
        """Read what `to_json` wrote.

        Raises:
            InputError: the document is not a timeline of this schema version.
        """
        if document.get("kind") != "timeline" or document.get("schema_version") != SCHEMA_VERSION:
            raise InputError(
                f"not a parsim timeline: kind={document.get('kind')!r}, "
                f"schema_version={document.get('schema_version')!r}; "
                f"expected kind='timeline', schema_version={SCHEMA_VERSION}"
            )
        return cls(
            spans=tuple(Span(*row) for row in document["spans"]),
            flows=tuple(Flow(*row) for row in document["flows"]),
            memory=tuple(MemoryCurve.from_json(curve) for curve in document["memory"]),
            critical=tuple(document["critical"]),
            meta=dict(document["meta"]),
        )

    def save(self, path: Path) -> None:
        """Write the timeline's own JSON (not the Perfetto trace)."""
        path.write_text(json.dumps(self.to_json()) + "\n", encoding="utf-8")


def ordered(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Spans in the order that `Timeline` promises: rank, stream, start."""
    return tuple(sorted(spans, key=lane_order))


def lane_order(span: Span) -> tuple[int, int, float, float]:
    """What `ordered` sorts by."""
    lane = STREAMS.index(span.stream) if span.stream in STREAMS else len(STREAMS)
    return (span.rank, lane, span.start, span.end)
