"""The 32 rows of PipeDream's optimizer: its bottleneck times, its baselines, and its plans.

`rows.csv` is what msr-fiddle/pipedream 7db6a1c, `optimizer_graph_hierarchical.py`, prints for its
own profiles (`profiles/`, MIT); a plan is given where it is the only optimum or the one that is
found first, cuts where they are unique.
"""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

import pytest

from parsim.partition.hierarchy import partition
from parsim.partition.layer_graph import read_layer_graph
from parsim.partition.levels import Level, Options
from parsim.partition.states import States, states_of

FOLDER = Path(__file__).parent
ROWS = list(csv.DictReader((FOLDER / "rows.csv").read_text().splitlines()))
ONE_DEVICE = {
    "vgg16": 0.672535,
    "resnet50": 0.443419,
    "alexnet": 0.085321,
    "resnet18": 0.259742,
    "squeezenet1_0": 0.285366,
    "gnmt": 0.089416,
    "gnmt_large": 0.520453,
}


@cache
def states(name: str) -> States:
    return states_of(read_layer_graph(FOLDER / "profiles" / f"{name}.graph.txt"))


@pytest.mark.parametrize("name", ONE_DEVICE)
def test_one_device(name: str) -> None:
    assert states(name).seconds[-1] == pytest.approx(ONE_DEVICE[name], abs=1e-6)


def test_states_are_as_many_as_the_profiles_have_places_to_cut() -> None:
    counts = {name: len(states(name)) for name in ("vgg16", "gnmt", "resnet50", "gnmt_large")}
    assert counts == {"vgg16": 40, "gnmt": 99, "resnet50": 240, "gnmt_large": 1495}


@pytest.mark.parametrize("row", ROWS, ids=[row["row"] for row in ROWS])
def test_row(row: dict[str, str]) -> None:
    pairs = zip(row["units"].split(), row["bandwidth_gb_per_s"].split(), strict=True)
    options = Options(
        transfers=row["transfers"] == "1",
        straight=row["straight"] == "1",
        memory=float(row["memory_bytes"]) if row["memory_bytes"] else None,
        stashed_alone=True,
    )
    levels = [Level(int(units), 1e9 * float(rate)) for units, rate in pairs]
    best = partition(states(row["profile"]), levels, options)
    assert best.seconds == pytest.approx(float(row["pipeline_s"]), abs=1e-6)
    assert best.data_parallel == pytest.approx(float(row["data_parallel_s"]), abs=1e-6)
    if row["plan"]:
        assert "-".join(map(str, best.replicas)) == row["plan"]
    if row["cuts"]:
        assert [stage.first for stage in best.stages[1:]] == list(map(int, row["cuts"].split()))
    assert sum(best.replicas) == _devices(row)


def _devices(row: dict[str, str]) -> int:
    devices = 1
    for units in row["units"].split():
        devices *= int(units)
    return devices


def test_the_papers_form_on_the_published_cases() -> None:
    """The paper's max(compute, 2 (m - 1) W / B): pure data parallelism, and 12 first."""
    paper = Options(mode="pipedream-paper", transfers=True)
    four = partition(states("vgg16"), [Level(4, 10e9)], paper)
    assert (four.replicas, round(four.seconds, 6)) == ((4,), 0.168134)
    sixteen = partition(states("vgg16"), [Level(4, 10e9), Level(4, 1.25e9)], paper)
    assert round(sixteen.seconds, 6) == 0.062783
    assert sixteen.replicas[0] == 12
