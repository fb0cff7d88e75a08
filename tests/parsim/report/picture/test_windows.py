"""Magnified windows of long steps."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from parsim.report.picture.gantt import draw_timeline
from parsim.report.picture.scales import windows_of
from parsim.timelines.timeline import Timeline

Pipeline = Callable[..., Timeline]


def test_a_short_step_has_no_windows(pipeline: Pipeline) -> None:
    assert windows_of(pipeline(4, 8), 13.0) == ()
    assert len(draw_timeline(pipeline(4, 8)).axes) == 1


def test_windows_are_the_start_the_middle_and_the_end_of_a_long_step(pipeline: Pipeline) -> None:
    timeline = pipeline(4, 200)
    warm, steady, drain = windows_of(timeline, 13.0)
    lengths = [window.end - window.start for window in (warm, steady, drain)]
    assert lengths == pytest.approx([lengths[0]] * 3)
    assert warm.start == 0.0
    assert steady.start < timeline.end / 2 < steady.end
    assert drain.start < max(span.end for span in timeline.spans if span.kind == "B") <= drain.end
    assert warm.end < steady.start
    assert steady.end < drain.start


def test_windows_have_the_numbers_for_which_the_whole_has_no_room(pipeline: Pipeline) -> None:
    whole, *windows = draw_timeline(pipeline(4, 99)).axes
    assert [axes.get_title(loc="left") for axes in windows] == ["warm-up", "steady state", "drain"]
    assert not whole.texts
    assert all(axes.texts for axes in windows[1:])
    assert "98" in {text.get_text().lstrip("FB") for text in windows[2].texts}
    for axes in windows:
        low, high = axes.get_xlim()
        assert all(low <= text.get_position()[0] <= high for text in axes.texts)


def test_windows_of_a_step_without_a_pipeline_are_not_called_after_one(pipeline: Pipeline) -> None:
    alone = windows_of(pipeline(1, 200), 13.0)
    assert [window.name for window in alone] == ["begin", "middle", "end"]


def test_a_cut_picture_has_no_windows(pipeline: Pipeline) -> None:
    timeline = pipeline(4, 200)
    assert len(draw_timeline(timeline, until=timeline.end).axes) == 1


def test_rows_too_thin_for_numbers_have_no_windows(pipeline: Pipeline) -> None:
    assert windows_of(pipeline(65, 100), 13.0) == ()


def test_memory_stands_between_the_whole_step_and_its_windows(pipeline: Pipeline) -> None:
    figure = draw_timeline(pipeline(4, 200, memory=True), memory=True, critical=True)
    tops = [axes.get_position().y1 for axes in figure.axes]
    assert len(tops) == 5
    assert tops[0] > tops[1] > tops[2] == pytest.approx(tops[3]) == pytest.approx(tops[4])
