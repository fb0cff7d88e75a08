from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.errors import InputError
from parsim.report.picture.grid import Grid, readable_unit
from parsim.report.picture.timeline_grid import lay_out, picture_end, row_names
from parsim.timelines.timeline import Span, Timeline, ordered

Pipeline = Callable[..., Timeline]


def timeline_of(*spans: Span, **parts: Any) -> Timeline:
    return Timeline(spans=ordered(spans), **parts)


def grid_of(timeline: Timeline, end: float | None = None) -> Grid:
    return lay_out(timeline, column_inches=10.0, end=end or timeline.end)


def five_pixels_a_letter(text: str, _points: float) -> float:
    return 5.0 * len(text)


def test_rows_follow_the_ranks_and_chunks_the_stages() -> None:
    spans = [
        Span(rank, "compute", "F", 0.0, 1.0, stage) for rank, stage in ((7, 5), (7, 1), (2, 0))
    ]
    grid = grid_of(timeline_of(*spans))
    assert grid.rows == {2: 0, 7: 1}
    assert grid.chunks == {(2, 0): 0, (7, 1): 0, (7, 5): 1}
    assert grid.chunk_count == 2


def test_a_box_is_cut_at_the_end_and_waits_in_its_tail() -> None:
    span = Span(0, "compute", "B", 0.1, 0.5, 0, 0, exposed=0.1)
    whole, cut = (grid_of(timeline_of(span), end).box(span, 1) for end in (0.5, 0.3))
    assert (whole.left, whole.tail, whole.right) == pytest.approx((100.0, 400.0, 500.0))
    assert (cut.left, cut.tail, cut.right) == pytest.approx((100.0, 300.0, 300.0))


def test_what_starts_after_the_end_has_no_box() -> None:
    spans = [Span(0, "compute", "F", start, start + 1.0, 0, 0) for start in (0.0, 1.0, 2.0)]
    grid = grid_of(timeline_of(*spans), 2.0)
    assert [box.span.start for box in grid.boxes(spans)] == [0.0, 1.0]


@given(
    st.sets(st.sampled_from(["send", "recv", "tp", "dp", "copy", "disk"])),
    st.integers(min_value=1, max_value=300),
)
def test_lanes_lie_in_their_row_below_compute(streams: set[str], ranks: int) -> None:
    spans = [Span(rank, "compute", "F", 0.0, 1.0) for rank in range(ranks)]
    lanes = grid_of(timeline_of(*spans, *(Span(0, name, "X", 0.0, 1.0) for name in streams))).lanes
    assert set(lanes) == {"compute", *streams}
    assert all(0.0 <= top < bottom <= 1.0 for top, bottom in lanes.values())
    assert all(lanes[name][0] > lanes["compute"][1] for name in streams)


def test_thin_rows_share_one_lane_for_communication() -> None:
    def distinct(ranks: int) -> int:
        spans = [Span(i, name, "X", 0.0, 1.0) for i in range(ranks) for name in ("send", "dp")]
        return len(set(grid_of(timeline_of(*spans)).lanes.values()))

    assert distinct(4) == 3
    assert distinct(64) == 2


def test_labels_carry_the_kind_only_where_all_have_room() -> None:
    # 1,200 pixels a second: 20 ms are 24 pixels, 12 ms are 14.4.
    wide = [Span(0, "compute", "F", 0.1 * i, 0.1 * i + 0.02, 0, i) for i in range(9)]
    last = Span(0, "compute", "B", 0.9, 1.0, 0, 10)
    narrow = Span(0, "compute", "B", 0.85, 0.862, 0, 11)

    def labels(*spans: Span) -> list[str]:
        grid = grid_of(timeline_of(*spans))
        return [label.text for label in grid.labels(grid.boxes(spans), five_pixels_a_letter)]

    assert labels(*wide, last) == [*(f"F{i}" for i in range(9)), "B10"]
    assert labels(*wide, last, narrow) == [*map(str, range(9)), "10", "11"]


@pytest.mark.parametrize(("seconds", "texts"), [(0.0132, []), (0.016, ["241", "242"])])
def test_numbers_of_neighbours_do_not_read_as_one(seconds: float, texts: list[str]) -> None:
    # 1,200 pixels in a second: three digits of 5 pixels in boxes of 15.8 and of 19.2.
    spans = [Span(0, "compute", "B", seconds * i, seconds * (i + 1), 0, 241 + i) for i in (0, 1)]
    grid = grid_of(timeline_of(*spans), 1.0)
    drawn = grid.labels(grid.boxes(spans), five_pixels_a_letter)
    assert [label.text for label in drawn] == texts


def test_narrow_boxes_have_smaller_numbers_and_versions() -> None:
    # 1,200 pixels in a second; two digits of 9 points need 18 + 3 pixels here, of 6.3 points 15.6
    def point_a_pixel(text: str, points: float) -> float:
        return len(text) * points

    spans = [Span(0, "compute", "B", 0.1 * i, 0.1 * i + wide, 0, 10 + i) for i, wide in WIDTHS]
    versions = [[*range(20)]]
    grid = replace(grid_of(timeline_of(*spans), 1.0), versions=versions, row_inches=0.6)
    drawn = list(grid.labels(grid.boxes(spans), point_a_pixel))
    assert [(label.text, label.points) for label in drawn] == [("10", 9.0), ("11", 6.3)]
    assert [grid.version_of(label, point_a_pixel) for label in drawn] == [
        ("v10", 6.75),
        ("v11", 5.5),
    ]


WIDTHS = ((0, 0.025), (1, 0.015), (2, 0.012))
"""Number of a box, and its seconds."""


def test_dense_pictures_have_no_labels(pipeline: Pipeline) -> None:
    timeline = pipeline(65, 1)
    grid = grid_of(timeline)
    assert grid.dense
    assert list(grid.labels(grid.boxes(timeline.spans), five_pixels_a_letter)) == []


def test_the_path_crosses_each_box_low_in_its_lane() -> None:
    spans = [Span(0, "compute", "F", 0.0, 1.0, 0, 0), Span(1, "compute", "F", 1.0, 2.0, 1, 0)]
    grid = grid_of(timeline_of(*spans))
    x, y = grid.path(spans)
    assert x == pytest.approx([0.0, 1.0, 1.0, 2.0])
    boxes = [grid.box(span, grid.chunk_count) for span in spans]
    for height, box in zip(y[::2], boxes, strict=True):
        assert (box.top + box.bottom) / 2 < height < box.bottom
    assert y[::2] == y[1::2]


@given(st.floats(min_value=1e-6, max_value=1e6))
def test_a_length_reads_as_one_or_more_of_its_unit(seconds: float) -> None:
    unit, per_second = readable_unit(seconds)
    assert seconds * per_second >= 0.999
    assert unit == "s" or seconds * per_second < 1000.0


def test_long_names_of_ranks_are_shortened() -> None:
    timeline = timeline_of(
        Span(0, "compute", "F", 0.0, 1.0), meta={"rank_labels": {0: "node " * 20}}
    )
    (name,) = row_names(timeline)
    assert len(name) <= 40
    assert name.endswith("...")


def test_the_picture_ends_where_asked_or_with_the_timeline() -> None:
    timeline = timeline_of(Span(0, "compute", "F", 0.0, 3.0))
    assert picture_end(timeline, None) == 3.0
    assert picture_end(timeline, 2.0) == 2.0
    with pytest.raises(InputError, match=r"until=-1\.0 s"):
        picture_end(timeline, -1.0)
