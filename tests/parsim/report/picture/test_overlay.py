"""The picture of two timelines: rows in pairs, one time axis, both step times in the caption."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure

from parsim.comparison.timelines import compare_timelines
from parsim.errors import InputError
from parsim.report.picture.overlay import caption, draw_overlay, side_by_side
from parsim.timelines.timeline import Span, Timeline, ordered

Pipeline = Callable[..., Timeline]


def slower(timeline: Timeline, factor: float) -> Timeline:
    spans = tuple(s._replace(start=s.start * factor, end=s.end * factor) for s in timeline.spans)
    meta = {**timeline.meta, "step_time_s": timeline.meta["step_time_s"] * factor, "model": "gpt2"}
    return Timeline(spans=spans, memory=timeline.memory, meta=meta)


def drawn(predicted: Timeline, measured: Timeline) -> Figure:
    return draw_overlay(predicted, measured, compare_timelines(predicted, measured))


def test_each_rank_has_its_prediction_above_its_measurement(pipeline: Pipeline) -> None:
    timeline = pipeline(2, 3)
    other = slower(timeline, 1.25)
    both = side_by_side(timeline, other, compare_timelines(timeline, other))
    assert both.ranks == (0, 1, 2, 3)
    for rank in (0, 1):
        ours, theirs = list(both.on(2 * rank)), list(both.on(2 * rank + 1))
        assert [s._replace(rank=rank) for s in ours] == list(timeline.on(rank))
        assert [s._replace(rank=rank) for s in theirs] == list(other.on(rank))


def test_rows_are_named_and_the_axis_ends_with_the_longer_one(pipeline: Pipeline) -> None:
    timeline = pipeline(2, 3)
    axes = drawn(timeline, slower(timeline, 1.25)).axes[0]
    names = [text.get_text() for text in axes.get_yticklabels()]
    assert names == ["0 predicted", "measured", "1 predicted", "measured"]
    assert axes.get_xlim() == pytest.approx((0.0, 1.25e3 * timeline.end))
    assert axes.get_xlabel() == "time [ms]"


def test_a_line_marks_the_end_of_each_row(pipeline: Pipeline) -> None:
    timeline = pipeline(2, 3)
    axes = drawn(timeline, slower(timeline, 1.25)).axes[0]
    lines = [c for c in axes.collections if type(c).__name__ == "LineCollection"]
    segments = [np.asarray(c.get_paths()[0].vertices) for c in lines]
    ends = [1e3 * timeline.end, 1.25e3 * timeline.end] * 2
    assert [s[0, 0] for s in segments] == pytest.approx(ends)
    assert [(s[0, 1], s[1, 1]) for s in segments] == [(0, 1), (1, 2), (2, 3), (3, 4)]


def test_title_and_caption(pipeline: Pipeline) -> None:
    timeline = pipeline(2, 3)
    figure = drawn(timeline, slower(timeline, 1.25))
    assert [text.get_text() for text in figure.texts] == [
        "gpt2 · predicted above measured",
        "pp=2 v=1 m=3 1F1B · step time 0.120 s predicted, 0.150 s measured, error -20.0 %",
    ]


def test_a_caption_without_plan_and_error() -> None:
    first, none = (
        Timeline(spans=(Span(0, "compute", "F", 0.0, 1.0, 0, 0),), meta={"step_time_s": step})
        for step in (1.0, 0.0)
    )
    comparison = compare_timelines(first, none)
    assert caption(first, none, comparison) == "step time 1.000 s predicted, 0.000 s measured"


def test_colours_and_legend_are_those_of_one_timeline(pipeline: Pipeline) -> None:
    from parsim.report.picture.gantt import draw_timeline

    timeline = pipeline(2, 4, 2, communication=True)
    alone, both = draw_timeline(timeline), drawn(timeline, slower(timeline, 1.25))
    legends = [[t.get_text() for t in f.legends[0].get_texts()] for f in (alone, both)]
    assert legends[0] == legends[1]


def test_of_folded_ranks_the_first_is_drawn(pipeline: Pipeline) -> None:
    timeline = pipeline(2, 3)
    measured = Timeline(
        spans=ordered(s._replace(rank=2 * s.rank + i) for s in timeline.spans for i in (0, 1)),
        meta={"pipeline_rank": {"0": 0, "1": 0, "2": 1, "3": 1}},
    )
    names = [text.get_text() for text in drawn(timeline, measured).axes[0].get_yticklabels()]
    assert names[1::2] == ["measured (rank 0, first of 2)", "measured (rank 2, first of 2)"]


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_the_same_timelines_give_the_same_file(
    pipeline: Pipeline, tmp_path: Path, suffix: str
) -> None:
    timeline = pipeline(2, 3)
    other = slower(timeline, 1.25)
    files = [tmp_path / "new" / f"{name}.{suffix}" for name in "ab"]
    for file in files:
        draw_overlay(timeline, other, compare_timelines(timeline, other), path=file)
    assert files[0].read_bytes() == files[1].read_bytes()
    if suffix == "svg":
        assert ElementTree.parse(files[0]).getroot().tag == "{http://www.w3.org/2000/svg}svg"


def test_a_form_that_is_no_picture(pipeline: Pipeline, tmp_path: Path) -> None:
    timeline = pipeline(1, 1)
    with pytest.raises(InputError) as caught:
        draw_overlay(
            timeline, timeline, compare_timelines(timeline, timeline), path=tmp_path / "x.html"
        )
    assert str(caught.value) == (
        f"cannot draw to {tmp_path}/x.html: suffix '.html'; allowed: .png, .svg"
    )


def test_no_time_to_draw(tmp_path: Path) -> None:
    spans = Timeline(spans=(Span(0, "compute", "F", 0.0, 0.0, 0, 0),))
    with pytest.raises(InputError, match="it has no span that takes time"):
        draw_overlay(spans, spans, compare_timelines(spans, spans), path=tmp_path / "x.png")
    assert not (tmp_path / "x.png").exists()
