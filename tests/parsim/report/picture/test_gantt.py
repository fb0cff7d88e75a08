from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from parsim.errors import InputError
from parsim.report.picture import colours
from parsim.report.picture.gantt import draw_timeline
from parsim.report.picture.grid import readable_unit
from parsim.report.picture.saving import rendered
from parsim.report.picture.timeline_grid import lay_out
from parsim.timelines.timeline import Span, Timeline, ordered

Pipeline = Callable[..., Timeline]


def timeline_of(*spans: Span, **parts: Any) -> Timeline:
    return Timeline(spans=ordered(spans), **parts)


def texts(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def legend_of(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def rectangles(axes: Axes, fill: colours.RGB) -> list[tuple[float, float, float, float]]:
    """Left, right, top and bottom of every rectangle of one fill."""
    collected = []
    for collection in axes.collections:
        assert isinstance(collection, PolyCollection)
        fills = np.atleast_2d(np.asarray(collection.get_facecolor(), dtype=float))
        for i, path in enumerate(collection.get_paths()):
            if tuple(fills[i % len(fills)][:3]) == pytest.approx(fill):
                box = path.get_extents()
                collected.append((box.x0, box.x1, min(box.y0, box.y1), max(box.y0, box.y1)))
    return collected


def blue(axes: Axes) -> list[tuple[float, float, float, float]]:
    return rectangles(axes, colours.rgb("#0072B2"))


def test_boxes_stand_at_their_times_in_the_row_of_their_rank() -> None:
    figure = draw_timeline(
        timeline_of(
            Span(3, "compute", "F", 0.0, 0.25, 0, 0), Span(5, "compute", "F", 0.25, 0.5, 1, 0)
        )
    )
    first, second = sorted(blue(figure.axes[0]))
    assert first[:2] == pytest.approx((0.0, 250.0))
    assert second[:2] == pytest.approx((250.0, 500.0))
    assert 0.0 <= first[2] < first[3] <= 1.0 <= second[2] < second[3] <= 2.0


def test_rank_zero_is_on_top_and_rows_carry_rank_numbers(pipeline: Pipeline) -> None:
    axes = draw_timeline(pipeline(4, 8)).axes[0]
    bottom, top = axes.get_ylim()
    assert (bottom, top) == (4.0, 0.0)
    assert [text.get_text() for text in axes.get_yticklabels()] == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("seconds", "unit"), [(12.0, "s"), (1.0, "s"), (0.5, "ms"), (1e-3, "ms"), (9e-4, "us")]
)
def test_axis_unit_follows_the_length(seconds: float, unit: str) -> None:
    assert readable_unit(seconds)[0] == unit
    axes = draw_timeline(timeline_of(Span(0, "compute", "F", 0.0, seconds, 0, 0))).axes[0]
    assert axes.get_xlabel() == f"time [{unit}]"
    assert axes.get_xlim() == pytest.approx((0.0, seconds * readable_unit(seconds)[1]))


def test_a_reduction_that_compute_waits_for_is_exposed_communication_and_not_idle() -> None:
    spans = (
        Span(0, "compute", "B", 0.0, 0.5, 0, 0),
        Span(0, "dp", "REDUCE_GRAD", 0.4, 0.8, exposed=0.3),
        Span(0, "compute", "OPTIMIZER", 0.8, 1.0),
    )
    timeline = timeline_of(*spans)
    grid = lay_out(timeline, column_inches=10.0, end=timeline.end)
    ((left, right, top, bottom),) = grid.waits(grid.boxes(timeline.spans))
    assert (left, right) == pytest.approx((0.5 * grid.per_second, 0.8 * grid.per_second))
    assert (top, bottom) == grid.lanes["compute"]
    words = legend_of(draw_timeline(timeline))
    assert "exposed communication" in words
    assert "idle" not in words


def test_label_stands_clear_of_the_exposed_tail() -> None:
    figure = draw_timeline(timeline_of(Span(0, "compute", "F", 0.0, 1.0, 0, 7, exposed=0.5)))
    assert figure.axes[0].texts[0].get_position()[0] == pytest.approx(0.25)
    (tail,) = rectangles(figure.axes[0], colours.rgb(colours.EXPOSED_FILL))
    assert tail[:2] == pytest.approx((0.5, 1.0))
    assert "exposed communication" in legend_of(figure)


def test_chunks_of_a_rank_differ_in_lightness(pipeline: Pipeline) -> None:
    axes = draw_timeline(pipeline(2, 4, 2)).axes[0]
    light = rectangles(axes, colours.shade("#0072B2", 1, 2))
    assert len(light) == len(blue(axes)) == 8


def test_communication_lies_below_compute_one_lane_a_stream(pipeline: Pipeline) -> None:
    axes = draw_timeline(pipeline(2, 2, communication=True)).axes[0]
    compute = max(box[3] for box in blue(axes) if box[3] < 1)
    transfers = {box[2:] for box in rectangles(axes, colours.rgb("#56B4E9")) if box[3] < 1}
    collectives = {box[2:] for box in rectangles(axes, colours.rgb("#D55E00")) if box[3] < 1}
    assert len(transfers) == 2
    assert len(collectives) == 1
    assert all(top > compute for top, _ in transfers | collectives)


def test_input_gradients_are_hatched() -> None:
    axes = draw_timeline(timeline_of(Span(0, "compute", "I", 0.0, 1.0, 0, 0))).axes[0]
    assert [collection.get_hatch() for collection in axes.collections] == [None, "////"]


def test_until_cuts_the_picture(pipeline: Pipeline) -> None:
    figure = draw_timeline(pipeline(4, 8), until=0.035)
    assert figure.axes[0].get_xlim() == pytest.approx((0.0, 35.0))
    assert max(box[1] for box in blue(figure.axes[0])) == pytest.approx(35.0)
    assert legend_of(figure) == ["F  forward", "idle"]


def test_critical_path_runs_from_span_to_span(pipeline: Pipeline) -> None:
    timeline = pipeline(4, 8)
    (line,) = draw_timeline(timeline, critical=True).axes[0].lines
    spans = [timeline.spans[number] for number in timeline.critical]
    times = [1e3 * time for span in spans for time in (span.start, span.end)]
    assert list(line.get_xdata()) == pytest.approx(times)  # type: ignore[arg-type]
    rows = [int(y) for y in line.get_ydata()]  # type: ignore[arg-type, union-attr]
    assert rows[::2] == rows[1::2] == [span.rank for span in spans]


def test_dense_pictures_have_few_artists_and_no_labels(pipeline: Pipeline) -> None:
    timeline = pipeline(64, 64, communication=True)
    axes = draw_timeline(timeline).axes[0]
    assert sum(span.stream == "compute" for span in timeline.spans) > 8192
    assert len(axes.collections) < 12
    assert texts(axes) == []
    assert len(axes.get_yticks()) <= 64


@pytest.mark.parametrize("suffix", [".png", ".svg", ".PNG"])
def test_same_timeline_same_bytes(pipeline: Pipeline, tmp_path: Path, suffix: str) -> None:
    timeline = pipeline(4, 4, 2, communication=True, memory=True)
    paths = [tmp_path / f"{name}{suffix}" for name in "ab"]
    for path in paths:
        draw_timeline(timeline, path=path, memory=True, critical=True)
    first, second = (path.read_bytes() for path in paths)
    assert first == second
    assert first.startswith(b"\x89PNG" if suffix.lower() == ".png" else b"<?xml")
    assert b"date" not in first.lower()


def test_what_is_rendered_is_what_an_svg_file_holds(pipeline: Pipeline, tmp_path: Path) -> None:
    figure = draw_timeline(pipeline(2, 2), path=tmp_path / "x.svg")
    assert rendered(figure, ".svg") == (tmp_path / "x.svg").read_bytes()


def test_other_suffixes_are_refused_before_drawing(pipeline: Pipeline) -> None:
    with pytest.raises(InputError) as caught:
        draw_timeline(pipeline(2, 2), path=Path("x.pdf"))
    assert str(caught.value) == "cannot draw to x.pdf: suffix '.pdf'; allowed: .png, .svg"


def test_unwritable_path_is_named_with_the_reason(pipeline: Pipeline, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "x.png"
    with pytest.raises(InputError) as caught:
        draw_timeline(pipeline(2, 2), path=path)
    assert str(caught.value) == f"{path}: cannot write: {path.parent} is not a folder"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"memory": True}, "no memory curves"),
        ({"until": 0.0}, "until=0.0 s"),
        ({"until": float("nan")}, "until=nan s"),
        ({"width": 2.0}, "width=2.0 inches"),
    ],
)
def test_impossible_wishes_are_refused(
    pipeline: Pipeline, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        draw_timeline(pipeline(2, 2), **options)


def test_missing_critical_path_and_empty_timelines_are_refused() -> None:
    with pytest.raises(InputError, match="critical path: the timeline has none"):
        draw_timeline(timeline_of(Span(0, "compute", "F", 0.0, 1.0, 0, 0)), critical=True)
    with pytest.raises(InputError, match="no span that takes time"):
        draw_timeline(timeline_of())


def test_a_dollar_in_a_name_is_no_formula() -> None:
    timeline = timeline_of(Span(0, "compute", "F", 0.0, 1.0, 0, 0), meta={"plan": "$x^$ and $y$"})
    assert "$x^$" in draw_timeline(timeline, title="$z^$").texts[1].get_text()
    assert (
        rendered(draw_timeline(timeline, title="$z^$"), ".svg").decode().rstrip().endswith("</svg>")
    )


def test_drawing_loads_no_pyplot(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from parsim.report.picture.gantt import draw_timeline\n"
        "from parsim.timelines.timeline import Span, Timeline\n"
        "timeline = Timeline(spans=(Span(0, 'compute', 'F', 0.0, 1.0, 0, 0),))\n"
        f"draw_timeline(timeline, path=Path({str(tmp_path / 'x.png')!r}))\n"
        "sys.exit('matplotlib.pyplot' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def crowd(count: int) -> Timeline:
    return timeline_of(*(Span(0, "compute", "F", i, i + 1.0, 0, i) for i in range(count)))


@pytest.mark.parametrize(("count", "images"), [(20_000, 0), (20_001, 1)])
def test_very_many_boxes_are_one_image_in_an_svg(count: int, images: int) -> None:
    text = rendered(draw_timeline(crowd(count)), ".svg").decode()
    assert text.count("<image") == text.count("data:image/png;base64,") == images
    assert (text.count("<path") > count) == (images == 0)
    assert (len(text) < 200_000) == (images == 1)


def test_the_image_lies_where_the_rows_are() -> None:
    figure = draw_timeline(crowd(20_001))
    result = re.search(
        r'translate\(0 .*" x="([\d.]+)" y="-([\d.]+)" width="([\d.]+)" height="([\d.]+)"/>',
        rendered(figure, ".svg").decode(),
    )
    assert result is not None
    width, height = figure.get_size_inches() * 72
    box = figure.axes[0].get_position()
    tall = box.height * height  # of which a twentieth is free above and below the lane
    corner = (box.x0 * width, (1 - box.y1) * height + 0.05 * tall)
    expected = (*corner, box.width * width, 0.9 * tall)
    assert [float(number) for number in result.groups()] == pytest.approx(expected, abs=0.6)


def test_a_png_does_not_depend_on_what_is_pixels_in_an_svg(tmp_path: Path) -> None:
    figure = draw_timeline(crowd(20_001), path=tmp_path / "a.png")
    for collection in figure.axes[0].collections:
        assert collection.get_rasterized()
        collection.set_rasterized(False)
    figure.savefig(tmp_path / "b.png", metadata={"Software": None})
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
