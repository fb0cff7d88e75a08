from __future__ import annotations

from collections.abc import Callable

import pytest

from parsim.report.picture.gantt import draw_timeline
from parsim.timelines.timeline import MemoryCurve, Span, Timeline, ordered

Pipeline = Callable[..., Timeline]


def test_few_ranks_get_a_memory_curve_each(pipeline: Pipeline) -> None:
    panel = draw_timeline(pipeline(8, 8, memory=True), memory=True).axes[1]
    assert len(panel.lines) == 8
    assert panel.lines[0].get_label() == "other ranks"
    assert panel.lines[-1].get_label() == "rank 0 (highest peak)"
    assert panel.get_ylabel() == "allocated [GiB]"


def test_many_ranks_get_a_range_and_the_worst() -> None:
    # A peak of 1 us, inside one of the bins.
    gib = 2.0**30
    peak = MemoryCurve(rank=9, times=(0.0, 0.5004, 0.500401), bytes=(gib, 7 * gib, gib))
    flat = [MemoryCurve(rank=i, times=(0.0,), bytes=(2 * gib,)) for i in range(9)]
    spans = [Span(i, "compute", "F", 0.0, 1.0, i, 0) for i in range(10)]
    panel = draw_timeline(Timeline(spans=ordered(spans), memory=(*flat, peak)), memory=True).axes[1]
    assert [line.get_label() for line in panel.lines] == ["rank 9 (highest peak)"]
    band = panel.collections[0].get_datalim(panel.transData)
    assert (band.y0, band.y1) == pytest.approx((1.0, 7.0))


def test_a_curve_holds_its_last_value_to_the_end() -> None:
    gib = 2.0**30
    curve = MemoryCurve(rank=0, times=(0.0, 1.0), bytes=(gib, 3 * gib))
    timeline = Timeline(spans=(Span(0, "compute", "F", 0.0, 4.0, 0, 0),), memory=(curve,))
    (line,) = draw_timeline(timeline, memory=True).axes[1].lines
    assert list(line.get_xdata()) == [0.0, 1.0, 4.0]  # type: ignore[arg-type]
    assert list(line.get_ydata()) == [1.0, 3.0, 3.0]  # type: ignore[arg-type]


def test_the_parts_of_the_highest_rank_lie_on_one_another() -> None:
    gib = 2.0**30
    curves = tuple(
        MemoryCurve(
            rank=i,
            times=(0.0, 1.0),
            bytes=((3 + i) * gib, gib),
            static=gib,
            activations=(gib, 0.0),
            parts={"parameters": 0.25 * gib, "optimizer": 0.75 * gib},
        )
        for i in range(2)
    )
    spans = (Span(0, "compute", "F", 0.0, 4.0, 0, 0),)
    timeline = Timeline(spans=spans, memory=curves, meta={"capacity_bytes": 8 * gib})
    panel = draw_timeline(timeline, memory=True).axes[1]
    names = [line.get_label() for line in panel.lines]
    assert names == ["other ranks", "rank 1 (highest peak)", "memory of the device, 8 GiB"]
    tops = {
        part.get_label(): part.get_datalim(panel.transData).y1
        for part in panel.collections
        if not str(part.get_label()).startswith("_")
    }
    # up to 0.25, then 0.75 more, 1 of activations, and the other 2 of the 4 are buffers
    assert tops == pytest.approx(
        {"parameters": 0.25, "optimizer": 1.0, "activations": 2.0, "buffers": 4.0}
    )
    assert panel.get_ylim()[1] > 8.0


def test_far_more_memory_than_is_held_breaks_the_axis_below_its_line() -> None:
    gib = 2.0**30
    curve = MemoryCurve(rank=0, times=(0.0, 1.0), bytes=(gib, 4 * gib))
    spans = (Span(0, "compute", "F", 0.0, 4.0, 0, 0),)
    timeline = Timeline(spans=spans, memory=(curve,), meta={"capacity_bytes": 80 * gib})
    panel = draw_timeline(timeline, memory=True).axes[1]
    (line,) = (line for line in panel.lines if "memory of" in str(line.get_label()))
    assert line.get_label() == "memory of the device, 80 GiB (not to scale)"
    (height, _) = map(float, line.get_ydata())  # type: ignore[arg-type]
    assert 4.0 < height < panel.get_ylim()[1] < 8.0
    assert [label.get_text() for label in panel.get_yticklabels()] == [
        "0",
        "1",
        "2",
        "3",
        "4",
        "80",
    ]


def test_a_range_over_parts_is_drawn_by_its_edges() -> None:
    gib = 2.0**30
    curves = [
        MemoryCurve(
            rank=i, times=(0.0,), bytes=(float(i + 2) * gib,), static=gib, activations=(gib * i,)
        )
        for i in range(10)
    ]
    spans = [Span(i, "compute", "F", 0.0, 1.0, i, 0) for i in range(10)]
    panel = draw_timeline(Timeline(spans=ordered(spans), memory=tuple(curves)), memory=True).axes[1]
    (band,) = (part for part in panel.collections if part.get_label() == "range of all ranks")
    assert not len(band.get_facecolor())
