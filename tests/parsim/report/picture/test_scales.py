from __future__ import annotations

from collections.abc import Callable

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
