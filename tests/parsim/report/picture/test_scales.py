from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from parsim.report.picture.gantt import draw_timeline
from parsim.timelines.timeline import Span, Timeline, ordered

Pipeline = Callable[..., Timeline]


def drawn_end(end: float) -> list[str]:
    timeline = Timeline(spans=(Span(0, "compute", "F", 0.0, end, 0, 0),))
    return [label.get_text() for label in draw_timeline(timeline).axes[0].get_xticklabels()]


@pytest.mark.parametrize("end", [3.0, 3.001, 2.26, 9.99, 22.164, 0.0371, 19.83])
def test_the_last_tick_is_the_end(end: float) -> None:
    labels = drawn_end(end)
    shown = end if end >= 1.0 else 1e3 * end
    assert labels[-1] == f"{shown:.4g}"
    values = [float(label) for label in labels]
    assert values == sorted(values)
    # nothing touches the last label
    assert values[-1] - values[-2] > 0.01 * shown


def test_lanes_are_named_where_they_have_room() -> None:
    def spans(ranks: int) -> Timeline:
        streams = (("compute", "F"), ("send", "SEND_F"), ("dp", "REDUCE_GRAD"))
        spans = [Span(r, s, k, 0.0, 1.0, r, 0) for r in range(ranks) for s, k in streams]
        return Timeline(spans=ordered(spans))

    def names(ranks: int) -> list[str]:
        axes = draw_timeline(spans(ranks)).axes[0]
        return [label.get_text() for label in axes.get_yticklabels(minor=True)]

    assert names(2) == ["send", "data"] * 2
    assert names(40) == []


def test_the_lane_of_rings_and_tensor_ranks_is_called_by_what_it_carries() -> None:
    spans = [Span(0, s, k, 0.0, 1.0, 0, 0) for s, k in (("compute", "F"), ("tp", "EXCHANGE"))]
    axes = draw_timeline(Timeline(spans=ordered(spans))).axes[0]
    names = [label.get_text() for label in axes.get_yticklabels(minor=True)]
    assert names == ["activations"]


def four_lanes(ranks: int, count: int, long: float = 1.0) -> Timeline:
    """So many boxes a rank one behind the other, and messages of four kinds below each."""
    streams = [("compute", "F"), ("send", "SEND_F"), ("recv", "RECV_F")]
    streams += [("tp", "EXCHANGE"), ("dp", "REDUCE_GRAD")]
    return Timeline(
        spans=ordered(
            Span(rank, stream, kind, long * mb, long * (mb + 1), rank, mb)
            for rank in range(ranks)
            for stream, kind in streams
            for mb in range(count)
        )
    )


def test_names_of_lanes_make_room_for_themselves() -> None:
    """They were left out where they are wider than the names of ranks."""
    figure = draw_timeline(four_lanes(2, 2))
    axes = figure.axes[0]
    names = list(axes.get_yticklabels(minor=True))
    assert [name.get_text() for name in names] == ["send, receive", "activations, data"] * 2
    figure.draw_without_rendering()
    boxes = [name.get_window_extent() for name in names]
    assert min(box.x0 for box in boxes) > axes.yaxis.label.get_window_extent().x1 > 0.0
    assert max(box.x1 for box in boxes) < axes.get_window_extent().x0


@pytest.mark.parametrize("long", [1.0, 0.1375, 12.25])
def test_labels_of_a_time_axis_stand_apart(long: float) -> None:
    """In windows too, which are a third as wide; and no line runs through those of the whole."""
    figure = draw_timeline(four_lanes(2, 900, long))
    figure.draw_without_rendering()
    whole, *windows = figure.axes
    assert len(windows) == 3
    for axes in (whole, *windows):
        boxes = [label.get_window_extent() for label in axes.get_xticklabels()]
        assert all(left.x1 + 5.0 < right.x0 for left, right in pairwise(boxes))
    assert all(label.get_bbox_patch() is not None for label in whole.get_xticklabels())
