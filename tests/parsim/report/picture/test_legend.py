from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from parsim.report.picture.gantt import draw_timeline
from parsim.report.picture.legend import head_of, text_inches
from parsim.schedule.versions import Versions
from parsim.timelines.timeline import Span, Timeline, ordered

Pipeline = Callable[..., Timeline]

ENTRIES = [f"entry {i}" for i in range(11)]


def timeline_of(*spans: Span) -> Timeline:
    return Timeline(spans=ordered(spans))


def texts(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def legend_of(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def columns(names: Sequence[str], inches: float) -> int:
    return head_of("", {}, dict.fromkeys(names), inches).columns


def test_legend_names_only_what_occurs(pipeline: Pipeline) -> None:
    assert legend_of(draw_timeline(pipeline(2, 2))) == ["F  forward", "B  backward", "idle"]
    busy = timeline_of(Span(0, "compute", "W", 0.0, 1.0, 0, 0))
    assert legend_of(draw_timeline(busy)) == ["W  backward for weights"]


def test_unknown_kinds_appear_under_their_own_name() -> None:
    assert legend_of(draw_timeline(timeline_of(Span(0, "compute", "NAP", 0.0, 1.0)))) == ["NAP"]


def test_caption_says_what_meta_says(pipeline: Pipeline) -> None:
    caption = draw_timeline(pipeline(4, 8)).texts[1].get_text()
    for part in ("pp=4", "step time 330 ms", "bubble 27.3 %", "idle compute time", "61.2 GiB"):
        assert part in caption


def test_caption_takes_the_worst_of_several_ranks(pipeline: Pipeline) -> None:
    meta = {"peak_allocated_bytes": [1.0, 3 * 2.0**30, 2.0**30]}
    figure = draw_timeline(Timeline(spans=pipeline(2, 2).spans, meta=meta))
    assert figure.texts[1].get_text() == "peak allocated 3.0 GiB"


@pytest.mark.parametrize("width", [6.0, 14.0])
def test_nothing_in_the_head_is_clipped_or_lies_over_the_rows(
    pipeline: Pipeline, width: float
) -> None:
    timeline = pipeline(4, 8, 2, communication=True)
    meta = {**timeline.meta, "plan": "tp=8 pp=4 dp=16 micro-batch 2 " * 8}
    figure = draw_timeline(
        Timeline(spans=timeline.spans, meta=meta), width=width, title="a long headline " * 12
    )
    figure.canvas.draw()
    parts = [part.get_window_extent() for part in (*figure.texts, figure.legends[0])]
    assert all(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 for box in parts)
    above = [figure.bbox.y1, *(box.y0 for box in parts)]
    below = [*(box.y1 for box in parts), figure.axes[0].get_window_extent().y1]
    assert all(low >= high for low, high in zip(above, below, strict=True))


def test_rank_labels_may_come_with_text_keys(pipeline: Pipeline) -> None:
    timeline = Timeline(spans=pipeline(2, 2).spans, meta={"rank_labels": {"0": "a", 1: "b"}})
    labels = draw_timeline(timeline).axes[0].get_yticklabels()
    assert [text.get_text() for text in labels] == ["a", "b"]


def test_many_ranks_are_named_on_a_scale_of_powers_of_two(pipeline: Pipeline) -> None:
    axes = draw_timeline(pipeline(100, 2)).axes[0]
    names = [text.get_text() for text in axes.get_yticklabels()]
    assert names == [str(i) for i in range(0, 100, 2)]


def test_every_label_is_there_where_all_fit(pipeline: Pipeline) -> None:
    timeline = texts(draw_timeline(pipeline(4, 8)).axes[0])
    expected = sorted([f"{kind}{i}" for i in range(8) for kind in "FB"] * 4)
    assert sorted(timeline) == expected


def test_narrow_boxes_have_no_label() -> None:
    # 1,500 pixels a second: 10 ms are 15 pixels, 5 ms are 7.
    spans = [
        Span(0, "compute", "F", 0.0, 0.010, 0, 1),
        Span(0, "compute", "F", 0.010, 0.015, 0, 2),
        Span(0, "compute", "F", 0.5, 1.0, 0, 3),
    ]
    assert texts(draw_timeline(timeline_of(*spans)).axes[0]) == ["1", "3"]


def test_a_legend_that_fits_is_one_row() -> None:
    assert columns(ENTRIES, 14.0) == 11
    assert columns(ENTRIES[:1], 0.1) == 1


def test_rows_of_a_legend_are_about_as_full() -> None:
    # 10 fit in a row: 6 and 5 instead of 10 and 1; 5 fit: 4, 4 and 3 instead of 5, 5 and 1.
    entry = text_inches("entry 0", 9.0) + 3.9 * 9.0 / 72
    assert columns(ENTRIES, 10.7 * entry) == 6
    assert columns(ENTRIES, 5.8 * entry) == 4
    assert columns(ENTRIES, 0.5 * entry) == 1


def test_drawn_rows_of_a_legend_differ_by_one_entry_at_most() -> None:
    kinds = [f"some long name {i}" for i in range(11)]
    spans = [Span(0, "compute", kind, i, i + 1.0) for i, kind in enumerate(kinds)]
    figure = draw_timeline(timeline_of(*spans))
    figure.draw_without_rendering()
    heights = [round(t.get_window_extent().y0) for t in figure.legends[0].get_texts()]
    assert sorted(heights.count(y) for y in set(heights)) == [5, 6]


def test_the_head_grows_with_its_lines() -> None:
    low = head_of("", {}, dict.fromkeys(ENTRIES), 14.0)
    high = head_of("title", {"plan": "tp=8"}, dict.fromkeys(ENTRIES), 6.0)
    assert low.caption_top < high.caption_top < high.legend_top < high.height
    assert low.height < high.height


def test_versions_of_weights_stand_below_the_numbers_where_they_fit(pipeline: Pipeline) -> None:
    """Two stages of PipeDream: micro-batch M meets version max(0, M - 1), then M."""
    drawn = pipeline(2, 4)
    versions = Versions(rule="pipedream", pp=2).table(4)
    assert versions == [[0, 0, 1, 2], [0, 1, 2, 3]]
    dated = replace(drawn, meta={"weight_versions": versions})
    figure = draw_timeline(dated)
    labels = texts(figure.axes[0])
    assert [labels.count(f"v{version}") for version in range(4)] == [6, 4, 4, 2]  # F and B each
    assert "v0, v1: version of the weights" in legend_of(figure)
    many = {"weight_versions": Versions(rule="pipedream", pp=2).table(24)}
    narrow = draw_timeline(replace(pipeline(2, 24), meta=many), width=5.0)
    assert not any(text.startswith("v") for text in texts(narrow.axes[0]))
    plain = draw_timeline(drawn)
    assert not any(text.startswith("v") for text in texts(plain.axes[0]) + legend_of(plain))
