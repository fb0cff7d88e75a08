"""Timeline to Chrome trace-event JSON, which Perfetto and chrome://tracing open.

A rank is a process (`pid`), a stream is a thread (`tid`), a span is a complete event (`X`), an
arrow between spans is a flow (`s` and `f`), allocated memory is a counter (`C`).

Perfetto cuts microseconds off to whole nanoseconds, and loses slices of one track that overlap
without nesting. So ends are snapped to whole nanoseconds here and written so that cutting off
gives them back, and a span that still overlaps moves to a further track of its stream.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from parsim.report.text.summary import rank_labels
from parsim.report.writing import write_text
from parsim.timelines.timeline import STREAMS, MemoryCurve, Span, Timeline

if TYPE_CHECKING:
    from parsim.sim.contention.link_use import LinkCurve

Event = dict[str, Any]

_COMPUTE_TID: Final = 1  # not 0, which trace viewers keep for the system's idle thread
_PHASE_ORDER: Final = {"X": 0, "s": 1, "f": 2, "C": 3}  # a flow needs its slice open


class _Slice(NamedTuple):
    """Where a span lies in the trace; start and end are whole nanoseconds."""

    pid: int
    tid: int
    start: int
    end: int


class _Thread(NamedTuple):
    """One track of a process, and its place from the top."""

    pid: int
    tid: int
    sort_index: int
    name: str


def to_trace_events(timeline: Timeline, links: Sequence[LinkCurve] = ()) -> dict[str, Any]:
    """The timeline as a trace document: `traceEvents` are the names, then all else by time.

    An arrow is left out where it could not point forward in time inside both spans: one of them
    is shorter than a nanosecond, or the target ends before the source starts (clock skew between
    measured ranks). `otherData` counts those, and holds the timeline's `meta`. `links` become a
    counter for each class.
    """
    slices, threads = _place(timeline)
    flows = list(_flows(timeline, slices))
    timed = [_slice_event(span, slices[i]) for i, span in enumerate(timeline.spans)]
    timed += flows
    timed += [event for curve in timeline.memory for event in _counters(curve)]
    links_pid = max(timeline.ranks, default=-1) + 1  # the process of the links, below all ranks
    timed += [event for curve in links for event in _link_counters(curve, links_pid)]
    timed.sort(key=_order)
    meta = {key: value for key, value in timeline.meta.items() if key != "rank_labels"}
    return {
        "displayTimeUnit": "ms",
        "otherData": {**meta, "flows_left_out": len(timeline.flows) - len(flows) // 2},
        "traceEvents": [
            *_names(threads, rank_labels(timeline)),
            *(_process_names(links_pid, "links, busiest of each class") if links else ()),
            *timed,
        ],
    }


def save_trace(timeline: Timeline, path: Path, links: Sequence[LinkCurve] = ()) -> None:
    """Write the trace document as one line of JSON.

    Raises:
        InputError: the file cannot be written.
    """
    text = json.dumps(to_trace_events(timeline, links), separators=(",", ":"), allow_nan=False)
    write_text(path, text + "\n")


def _place(timeline: Timeline) -> tuple[list[_Slice], list[_Thread]]:
    """One slice for each span, on threads where slices nest or are disjoint."""
    lanes = [*STREAMS, *sorted({span.stream for span in timeline.spans} - set(STREAMS))]
    ends = [(_nanoseconds(span.start), _nanoseconds(span.end)) for span in timeline.spans]
    slices = [_Slice(0, 0, 0, 0)] * len(ends)
    stacks: dict[tuple[int, str, int], list[int]] = {
        (rank, "compute", 0): []
        for rank in {*timeline.ranks, *(curve.rank for curve in timeline.memory)}
    }
    # The longer of two spans that start together is the outer one.
    for i in sorted(range(len(ends)), key=lambda i: (ends[i][0], -ends[i][1])):
        rank, stream = timeline.spans[i][:2]
        copy = 0
        while not _fits(stacks.setdefault((rank, stream, copy), []), *ends[i]):
            copy += 1
        tid = _COMPUTE_TID + lanes.index(stream) + copy * len(lanes)
        slices[i] = _Slice(rank, tid, *ends[i])
    return slices, _threads(lanes, sorted(stacks))


def _fits(open_ends: list[int], start: int, end: int) -> bool:
    """Open a slice inside the innermost one still open, if it ends within that."""
    while open_ends and open_ends[-1] <= start:
        open_ends.pop()
    if open_ends and end > open_ends[-1]:
        return False
    open_ends.append(end)
    return True


def _threads(lanes: list[str], keys: list[tuple[int, str, int]]) -> list[_Thread]:
    """Threads by rank, from the top: streams in drawing order, further tracks after the first."""
    copies = 1 + max((copy for _, _, copy in keys), default=0)
    return sorted(
        _Thread(
            rank,
            _COMPUTE_TID + lanes.index(stream) + copy * len(lanes),
            lanes.index(stream) * copies + copy,
            f"{stream} ({copy + 1})" if copy else stream,
        )
        for rank, stream, copy in keys
    )


def _names(threads: list[_Thread], labels: dict[int, str]) -> Iterator[Event]:
    """Names and places of processes and threads.

    Perfetto gives a thread's name to the newest thread of that tid, whatever its process; so all
    names of one rank come before the next rank, and before any other event.
    """
    for thread in threads:
        where = {"ph": "M", "pid": thread.pid, "tid": thread.tid}
        if thread.tid == _COMPUTE_TID:
            yield from _process_names(thread.pid, labels.get(thread.pid, f"rank {thread.pid}"))
        yield {**where, "name": "thread_name", "args": {"name": thread.name}}
        yield {**where, "name": "thread_sort_index", "args": {"sort_index": thread.sort_index}}


def _slice_event(span: Span, box: _Slice) -> Event:
    """A complete event; stage and micro-batch are left out where they mean nothing."""
    args: Event = {"exposed_us": _microseconds(_nanoseconds(span.exposed))}
    if span.stage >= 0:
        args["stage"] = span.stage
    if span.microbatch >= 0:
        args["microbatch"] = span.microbatch
    return {
        "ph": "X",
        "name": span.name,
        "cat": span.kind,
        **_at(box, box.start),
        "dur": _microseconds(box.end - box.start),
        "args": args,
    }


def _flows(timeline: Timeline, slices: list[_Slice]) -> Iterator[Event]:
    """Both halves of every arrow that can be drawn, each inside its slice and in time order."""
    for number, flow in enumerate(timeline.flows, start=1):
        source, target = slices[flow.source], slices[flow.target]
        leave = max(source.start, min(source.end - 1, target.start))
        arrive = max(target.start, leave)
        if leave >= source.end or arrive >= target.end:
            continue
        both = {"cat": "flow", "name": timeline.spans[flow.source].kind, "id": number}
        yield {"ph": "s", **both, **_at(source, leave)}
        yield {"ph": "f", "bp": "e", **both, **_at(target, arrive)}


def _at(box: _Slice, time: int) -> Event:
    return {"pid": box.pid, "tid": box.tid, "ts": _microseconds(time)}


def _counters(curve: MemoryCurve) -> Iterator[Event]:
    """Allocated bytes at every change; the viewer holds a value until the next."""
    for time, value in zip(curve.times, curve.bytes, strict=True):
        yield _counter(curve.rank, "allocated", time, {"bytes": round(value)})


def _process_names(pid: int, name: str) -> Iterator[Event]:
    where = {"ph": "M", "pid": pid, "tid": _COMPUTE_TID}
    yield {**where, "name": "process_name", "args": {"name": name}}
    yield {**where, "name": "process_sort_index", "args": {"sort_index": pid}}


def _link_counters(curve: LinkCurve, pid: int) -> Iterator[Event]:
    """Percent of its rate that the busiest link of a class carries, at every change."""
    before = -1.0
    for time, used in zip(curve.times, curve.used, strict=True):
        if used != before:
            yield _counter(pid, curve.link_class, time, {"percent": round(100.0 * used, 3)})
        before = used


def _counter(pid: int, name: str, time: float, values: Mapping[str, float]) -> Event:
    ts = _microseconds(_nanoseconds(time))
    return {"ph": "C", "name": name, "pid": pid, "tid": _COMPUTE_TID, "ts": ts, "args": values}


def _order(event: Event) -> tuple[float, int, float]:
    return event["ts"], _PHASE_ORDER[event["ph"]], -event.get("dur", 0)


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)


def _microseconds(nanoseconds: int) -> float:
    """Microseconds that give the same nanoseconds back when times 1000 is cut off.

    1001 ns is 1.001 us, but 1.001 * 1000 in floating point is 1000.9999999999999.
    """
    value = nanoseconds / 1000
    return value if int(value * 1000) == nanoseconds else math.nextafter(value, math.inf)
