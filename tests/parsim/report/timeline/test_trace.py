from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.errors import InputError
from parsim.report.timeline.trace import save_trace, to_trace_events
from parsim.timelines.timeline import STREAMS, Flow, MemoryCurve, Span, Timeline, ordered

Pipeline = Callable[..., Timeline]
Event = dict[str, Any]


def nanoseconds(event: Event) -> tuple[int, int]:
    """Start and end as Perfetto reads them: times 1000, cut off."""
    start = int(event["ts"] * 1000)
    return start, start + int(event.get("dur", 0) * 1000)


def check(document: dict[str, Any]) -> None:
    """Everything a viewer needs to open a trace without a warning."""
    events = json.loads(json.dumps(document, allow_nan=False))["traceEvents"]
    timed = [event for event in events if event["ph"] != "M"]
    assert document["displayTimeUnit"] in ("ms", "ns")
    assert {event["ph"] for event in events} <= set("MXsfC")
    assert [event["ph"] for event in events[: len(events) - len(timed)]].count("M") == len(
        events
    ) - len(timed)
    check_fields(timed)
    check_names(events)
    check_nesting(event for event in timed if event["ph"] == "X")
    check_flows(timed)


def check_fields(timed: list[Event]) -> None:
    assert [event["ts"] for event in timed] == sorted(event["ts"] for event in timed)
    for event in timed:
        assert type(event["pid"]) is int
        assert type(event["tid"]) is int
        assert event["ts"] >= 0
        assert event.get("dur", 0) >= 0
        assert event["name"]
        if event["ph"] == "X":
            assert event["cat"]
            assert "dur" in event
        if event["ph"] == "C":
            assert all(type(value) is int for value in event["args"].values())


def check_names(events: list[Event]) -> None:
    """Each process and thread in use has one name and one place."""
    named: dict[str, list[Any]] = defaultdict(list)
    for event in events:
        if event["ph"] == "M":
            process = event["name"].startswith("process")
            named[event["name"]].append(event["pid"] if process else (event["pid"], event["tid"]))
    used = {(event["pid"], event["tid"]) for event in events}
    for name, keys in named.items():
        assert len(keys) == len(set(keys)), f"{name} twice"
    assert set(named["thread_name"]) == set(named["thread_sort_index"]) == used
    assert set(named["process_name"]) == set(named["process_sort_index"]) == {p for p, _ in used}


def check_nesting(slices: Iterable[Event]) -> None:
    stacks: dict[tuple[int, int], list[int]] = defaultdict(list)
    for event in slices:
        start, end = nanoseconds(event)
        stack = stacks[event["pid"], event["tid"]]
        while stack and stack[-1] <= start:
            stack.pop()
        assert not stack or end <= stack[-1], f"{event} overlaps its neighbour"
        stack.append(end)


def check_flows(timed: list[Event]) -> None:
    """Two ends an id, same name and category, forward in time, each inside an open slice."""
    halves: dict[int, list[Event]] = defaultdict(list)
    slices: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for event in timed:
        key = (event["pid"], event["tid"])
        if event["ph"] == "X":
            slices[key].append(nanoseconds(event))
        elif event["ph"] in "sf":
            assert type(event["id"]) is int
            halves[event["id"]].append(event)
            at, _ = nanoseconds(event)
            assert any(start <= at < end for start, end in slices[key]), f"{event} hangs free"
    for pair in halves.values():
        assert [event["ph"] for event in pair] == ["s", "f"]
        assert pair[0]["ts"] <= pair[1]["ts"]
        assert pair[0]["name"] == pair[1]["name"]
        assert pair[0]["cat"] == pair[1]["cat"]
        assert pair[1]["bp"] == "e"


def of(document: dict[str, Any], phase: str) -> list[Event]:
    return [event for event in document["traceEvents"] if event["ph"] == phase]


def named(document: dict[str, Any], name: str) -> list[Any]:
    return [
        next(iter(event["args"].values())) for event in of(document, "M") if event["name"] == name
    ]


@pytest.mark.parametrize("shape", [(1, 1, 1), (4, 8, 1), (4, 8, 2)])
def test_pipelines_give_clean_traces(pipeline: Pipeline, shape: tuple[int, int, int]) -> None:
    timeline = pipeline(*shape, communication=True, memory=True)
    document = to_trace_events(timeline)
    check(document)
    assert len(of(document, "X")) == len(timeline.spans)
    assert len(of(document, "s")) == len(of(document, "f")) == len(timeline.flows)
    assert document["otherData"]["flows_left_out"] == 0


times = st.integers(0, 40).map(lambda n: n * 0.7e-9) | st.floats(0.0, 3600.0)
spans = st.builds(
    lambda rank, stream, kind, ends: Span(rank, stream, kind, min(ends), max(ends), 0, 1),
    st.integers(0, 2),
    st.sampled_from([*STREAMS, "pcie"]),
    st.sampled_from(["F", "SEND_F", "REDUCE_GRAD"]),
    st.tuples(times, times),
)


@given(st.lists(spans, min_size=1, max_size=30), st.data())
def test_any_timeline_gives_a_clean_trace(drawn: list[Span], data: st.DataObject) -> None:
    numbers = st.integers(0, len(drawn) - 1)
    flows = data.draw(st.lists(st.builds(Flow, numbers, numbers), max_size=10))
    document = to_trace_events(Timeline(spans=ordered(drawn), flows=tuple(flows)))
    check(document)
    assert len(of(document, "X")) == len(drawn)
    left_out = document["otherData"]["flows_left_out"]
    assert len(of(document, "s")) == len(flows) - left_out


@given(st.integers(0, 10**15))
def test_nanoseconds_survive_cutting_off(nanosecond: int) -> None:
    span = Span(0, "compute", "F", 0.0, nanosecond * 1e-9)
    (event,) = of(to_trace_events(Timeline(spans=(span,))), "X")
    assert int(event["dur"] * 1000) == round(nanosecond * 1e-9 * 1e9)


def test_a_slice_says_what_its_span_is() -> None:
    span = Span(1, "compute", "B", 2e-6, 5e-6, 3, 7, exposed=1.5e-6)
    (event,) = of(to_trace_events(Timeline(spans=(span,))), "X")
    assert event == {
        "ph": "X",
        "name": "3B7",
        "cat": "B",
        "pid": 1,
        "tid": 1,
        "ts": 2.0,
        "dur": 3.0,
        "args": {"exposed_us": 1.5, "stage": 3, "microbatch": 7},
    }


def test_stage_is_left_out_where_it_means_nothing() -> None:
    span = Span(0, "compute", "OPTIMIZER", 0.0, 1.0)
    (event,) = of(to_trace_events(Timeline(spans=(span,))), "X")
    assert event["args"] == {"exposed_us": 0.0}


def test_streams_are_threads_in_drawing_order() -> None:
    spans = ordered(Span(0, stream, "F", 0.0, 1.0) for stream in ("pcie", "dp", "recv", "compute"))
    document = to_trace_events(Timeline(spans=spans))
    assert named(document, "thread_name") == ["compute", "recv", "dp", "pcie"]
    order = named(document, "thread_sort_index")
    assert order == sorted(order)


def test_overlapping_spans_of_one_stream_get_tracks_of_their_own() -> None:
    spans = (Span(0, "dp", "REDUCE_GRAD", 0.0, 2.0), Span(0, "dp", "REDUCE_GRAD", 1.0, 3.0))
    document = to_trace_events(Timeline(spans=spans))
    check(document)
    assert sorted(named(document, "thread_name")) == ["compute", "dp", "dp (2)"]


def test_processes_are_named_after_ranks_or_their_labels() -> None:
    spans = tuple(Span(rank, "compute", "F", 0.0, 1.0) for rank in (0, 3))
    document = to_trace_events(Timeline(spans=spans, meta={"rank_labels": {"3": "pp3 of dp0"}}))
    assert named(document, "process_name") == ["rank 0", "pp3 of dp0"]
    assert named(document, "process_sort_index") == [0, 3]
    assert "rank_labels" not in document["otherData"]


def test_arrow_leaves_at_the_end_of_the_send_and_meets_the_receive() -> None:
    spans = (
        Span(0, "send", "SEND_F", 0.0, 2e-6, 0, 0),
        Span(1, "recv", "RECV_F", 5e-6, 6e-6, 1, 0),
    )
    document = to_trace_events(Timeline(spans=spans, flows=(Flow(0, 1),)))
    assert [event["ts"] for event in (*of(document, "s"), *of(document, "f"))] == [1.999, 5.0]


def test_arrow_into_the_past_is_counted_not_drawn() -> None:
    spans = (Span(0, "send", "SEND_F", 5.0, 6.0, 0, 0), Span(1, "recv", "RECV_F", 1.0, 2.0, 1, 0))
    document = to_trace_events(Timeline(spans=spans, flows=(Flow(0, 1),)))
    check(document)
    assert of(document, "s") == []
    assert document["otherData"]["flows_left_out"] == 1


def test_memory_is_a_counter_of_bytes() -> None:
    curve = MemoryCurve(rank=2, times=(0.0, 1e-3), bytes=(5.0, 7.0))
    document = to_trace_events(Timeline(spans=(), memory=(curve,)))
    check(document)
    counters = [(e["pid"], e["name"], e["ts"], e["args"]) for e in of(document, "C")]
    assert counters == [
        (2, "allocated", 0.0, {"bytes": 5}),
        (2, "allocated", 1000.0, {"bytes": 7}),
    ]


def test_saved_file_is_the_document(pipeline: Pipeline, tmp_path: Path) -> None:
    timeline = pipeline(2, 4, communication=True)
    save_trace(timeline, tmp_path / "x.json")
    assert json.loads((tmp_path / "x.json").read_text()) == to_trace_events(timeline)


def test_unwritable_path_is_named_with_the_reason(pipeline: Pipeline, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        save_trace(pipeline(2, 2), tmp_path)
    assert str(caught.value) == f"{tmp_path}: cannot write: Is a directory"
