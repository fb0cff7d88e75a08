from __future__ import annotations

from dataclasses import replace

import pytest
from matplotlib.figure import Figure

from parsim.errors import InputError
from parsim.report.picture.staircases import draw_staircases
from parsim.sim.schedules.rows import ScheduleTable
from parsim.sim.schedules.units import schedule_table


@pytest.fixture(scope="module")
def compared() -> ScheduleTable:
    return schedule_table(4, 8)


def titles(figure: Figure) -> list[str]:
    return [axes.get_title(loc="left") for axes in figure.axes]


def test_a_panel_a_schedule_on_one_scale(compared: ScheduleTable) -> None:
    figure = draw_staircases(compared)
    names = [row.name + ("  v=2" if row.v == 2 else "") for row in compared.rows]
    assert titles(figure) == [*names, *(row.name for row in compared.asynchronous)]
    # naive's 96 units are cut at the longest of those that are at most half as long again as zb_v
    assert {axes.get_xlim() for axes in figure.axes} == {(0.0, 33.0)}
    cut = [
        axes.get_title(loc="left")
        for axes in figure.axes
        if axes.texts[-1:] and axes.texts[-1].get_text() == "…"
    ]
    assert cut == ["naive"]


def test_all_figures_of_a_schedule_stand_above_its_panel(compared: ScheduleTable) -> None:
    right = {
        axes.get_title(loc="left"): axes.get_title(loc="right")
        for axes in draw_staircases(compared).axes
    }
    assert right["1f1b"] == "33 units · bubble 27.3 % · holds 4 / 1"


def test_panels_are_numbered_where_all_numbers_fit(compared: ScheduleTable) -> None:
    panels = {axes.get_title(loc="left"): axes for axes in draw_staircases(compared).axes}
    assert len(panels["1f1b"].texts) == 4 * 16
    narrow = draw_staircases(schedule_table(16, 128, only=["1f1b"])).axes[0]
    assert len(narrow.texts) == 0


def test_a_box_that_takes_no_time_takes_no_numbers_from_the_others() -> None:
    """The first rank of a zero-bubble schedule has no gradient of inputs to compute."""
    compared = schedule_table(2, 4, only=["zb_h1"])
    (row,) = compared.rows
    spans = [
        span._replace(end=span.start) if (span.rank, span.kind) == (0, "I") else span
        for span in row.timeline.spans
    ]
    timed = replace(row, timeline=replace(row.timeline, spans=tuple(spans)))
    panel = draw_staircases(replace(compared, rows=(timed,))).axes[0]
    assert sorted(text.get_text() for text in panel.texts) == sorted(
        f"{kind}{mb}" for kind in "FW" for mb in range(4) for _ in range(2)
    )


def test_no_end_no_picture(compared: ScheduleTable) -> None:
    assert draw_staircases(compared, until=10.0).axes[0].get_xlim() == (0.0, 10.0)
    with pytest.raises(InputError, match="until=0"):
        draw_staircases(compared, until=0.0)


def test_pipelines_without_flush_alone() -> None:
    compared = schedule_table(4, 8, only=["pipedream"])
    assert titles(draw_staircases(compared)) == ["pipedream"]
