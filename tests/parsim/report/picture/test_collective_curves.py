"""The picture of collectives: a line a kind, points where measured, names that do not overlap."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection

from parsim.cluster.reader import load_catalog
from parsim.errors import InputError
from parsim.report.picture.collective_curves import draw_collectives
from parsim.report.picture.saving import check_picture
from parsim.sim.benchmark.collective_sweep import COLLECTIVES, Sweep, sweep
from parsim.sim.benchmark.concurrent import together
from parsim.sim.benchmark.group_layout import spread_layout

SIZES = tuple(8 << i for i in range(0, 31, 3))


def points_of(axes: Axes) -> list[PathCollection]:
    return [collection for collection in axes.collections if isinstance(collection, PathCollection)]


@pytest.fixture(scope="module")
def swept() -> Sweep:
    return sweep(spread_layout(load_catalog().systems["dgx-h100"], 2), COLLECTIVES, SIZES)


def test_a_line_for_every_kind_in_both_panels(swept: Sweep) -> None:
    time, rate = draw_collectives(swept).axes
    assert [line.get_label() for line in time.lines] == list(COLLECTIVES)
    assert len(rate.lines) == len(COLLECTIVES)
    rows = swept.of("all_reduce")
    np.testing.assert_array_equal(np.asarray(time.lines[0].get_xdata()), SIZES)
    np.testing.assert_allclose(
        np.asarray(rate.lines[0].get_ydata(), dtype=float), [row.busbw / 1e9 for row in rows]
    )
    for axes in (time, rate):
        assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")


def test_names_at_the_ends_stand_apart(swept: Sweep) -> None:
    figure = draw_collectives(swept)
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in figure.axes[1].texts]
    assert len(boxes) == 8  # bandwidth and kinds of four ends
    for i, box in enumerate(boxes):
        assert box.x1 <= figure.bbox.x1
        assert not any(box.overlaps(other) for other in boxes[i + 1 :])


def test_measured_points(swept: Sweep) -> None:
    timed = swept.beside({("all_reduce", 4096): (3e-4, 1e-5), ("all_reduce", 8): (1.0, 0.1)})
    time, rate = draw_collectives(timed, remark="measured here").axes
    (points,) = (
        collection for collection in time.collections if isinstance(collection, PathCollection)
    )
    np.testing.assert_allclose(np.asarray(points.get_offsets()), [[8, 1.0], [4096, 3e-4]])
    assert rate.get_ylim()[0] < 8 * 15 / 8 / 1e9  # the slowest point is seen
    assert time.get_title(loc="left") == "measured here"


@pytest.mark.parametrize(("system", "crosses"), [("gcp-a3-high", 2), ("dgx-h100", 0)])
def test_groups_that_slow_one_another_are_crosses(system: str, crosses: int) -> None:
    layout = spread_layout(load_catalog().systems[system], 2, 2, 8)
    alone = sweep(layout, ["all_reduce"], [1 << 24, 1 << 28])
    both = together(alone)
    figure = draw_collectives(alone, concurrent=both)
    for axes in figure.axes:
        assert len(points_of(axes)) == crosses
    if crosses:
        size, seconds = np.asarray(points_of(figure.axes[0])[-1].get_offsets())[0]
        assert (size, seconds) == (1 << 28, both.rows[-1].together)
        low, high = figure.axes[1].get_ylim()
        rates = [
            float(np.asarray(entry.get_offsets())[0, 1]) for entry in points_of(figure.axes[1])
        ]
        assert all(low < rate < high for rate in rates)
    title = figure.legends[0].get_title().get_text()
    assert title.endswith("crosses: 8 groups at once" if crosses else "do not slow one another")


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_same_input_same_file(swept: Sweep, tmp_path: Path, suffix: str) -> None:
    paths = [tmp_path / f"{name}{suffix}" for name in "ab"]
    for path in paths:
        draw_collectives(swept, path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert paths[0].stat().st_size > 10_000


def test_one_size_can_be_drawn() -> None:
    layout = spread_layout(load_catalog().systems["dgx-a100"], 1)
    figure = draw_collectives(sweep(layout, ["all_reduce"], [1 << 20]))
    figure.draw_without_rendering()
    for axes in figure.axes:
        (line,) = axes.lines
        assert np.asarray(line.get_xdata()).tolist() == [1 << 20]
        assert axes.get_xlim()[0] < 1 << 20 < axes.get_xlim()[1]
        assert axes.get_ylim()[0] < np.asarray(line.get_ydata()).item() < axes.get_ylim()[1]


def test_other_forms_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"allowed: \.png, \.svg"):
        check_picture(tmp_path / "x.pdf")
