"""Accuracy of networks' runs: what pages say of intervals that rest on these runs alone."""

from __future__ import annotations

import json
from importlib.resources import files

import pytest

from parsim.fitting.constants.influence import LeaveOut
from parsim.fitting.intervals.figures import errors_text, gather_errors, peaks_of, residuals_of
from parsim.fitting.intervals.novelty import Novelty
from parsim.report.accuracy.networks import networks_block, networks_line
from parsim.validation.coverage import shipped_left_out
from parsim.validation.tables import network_tables
from parsim.validation.validate import Validation, validate
from parsim.validation.validated_row import ValidatedRow

LEFT_OUT = "left_out_networks.json"
ROWS = Validation(
    rows=tuple(
        ValidatedRow(table="t", row_id=str(step), predicted_step=step, measured_step=1.0,
                     step_interval=(0.9 * step, 1.1 * step))
        for step in (0.8, 0.95, 1.05)
    )
)  # fmt: skip


def test_the_line_tells_how_many_lie_inside_also_of_what_is_new() -> None:
    left_out = shipped_left_out(LEFT_OUT)
    line = networks_line(ROWS, left_out)
    assert "median error 5.0 % of 3 step times" in line
    assert "intervals hold 66.7 % of 3 with a half width of 10.0 %" in line
    new = {level.level: level.coverage.covered or 0.0 for level in left_out.levels}
    assert f"{100 * new['model, dense']:.1f} % of those of a network" in line


def test_the_block_has_a_line_for_each_table_and_each_way_of_being_new() -> None:
    lines = networks_block(ROWS, shipped_left_out(LEFT_OUT)).splitlines()
    assert sum(line.startswith("| t | step time | 3 |") for line in lines) == 1
    assert [line.split("|")[1].strip().split(" ")[0].rstrip(":,") for line in lines[-5:]] == [
        *("nothing", "network", "device", "framework", "source")
    ]


def test_new_networks_and_devices_lie_inside_as_often_as_promised() -> None:
    levels = {level.level: level.coverage for level in shipped_left_out(LEFT_OUT).levels}
    for name in ("nothing", "model, dense", "device"):
        assert 0.76 <= (levels[name].covered or 0.0) <= 0.86
        assert (levels[name].ratio or 9.0) <= 2.5


@pytest.mark.slow
def test_the_shipped_figures_of_networks_are_those_of_the_shipped_rows() -> None:
    rows = validate(network_tables())
    runs = residuals_of(rows)
    novelty = Novelty(runs, gather_errors(runs, (), peaks_of(rows)), LeaveOut([]))
    now = json.loads(errors_text(novelty.figures()))
    text = (files("parsim.sim.confidence") / "interval_networks.json").read_text("utf-8")
    shipped = json.loads(text)
    assert shipped["factors"] == pytest.approx(now["factors"], abs=2e-3), "run `make reports`"
    halves = {(g["device"], g["software"]): g["half"] for g in shipped["groups"]}
    for group in now["groups"]:
        half = halves[group["device"], group["software"]]
        assert half == pytest.approx(group["half"], rel=5e-3), "run `make reports`"
