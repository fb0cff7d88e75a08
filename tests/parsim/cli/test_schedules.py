"""`parsim schedules`: the table, its JSON, the picture, and every kind of bad input."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsim.schedule import SCHEDULES
from tests.commands import SMALL, Cli


def test_the_table_in_units(cli: Cli) -> None:
    done = cli("schedules", "--pp", 4, "-m", 8, "--only", "1f1b,gpipe")
    assert (done.code, done.err) == (0, "")
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    assert lines[0] == "4 ranks, 8 micro-batches"
    assert lines[2] == "gpipe 1 33 27.3 % 37.5 % 27.3 % 8 1 48"
    assert lines[3] == "1f1b 1 33 27.3 % 37.5 % 27.3 % 4 / 1 1 48"


def test_the_document(cli: Cli) -> None:
    document = cli("schedules", "--pp", 4, "-m", 8, "--json").document
    assert document["schema_version"] == 1
    assert (document["pp"], document["num_microbatches"]) == (4, 8)
    named = [row["schedule"] for row in document["schedules"]]
    assert set(named) | {row["schedule"] for row in document["refused"]} == set(SCHEDULES)
    (first,) = (row for row in document["schedules"] if row["schedule"] == "1f1b")
    assert first["activations_by_rank"] == [4, 3, 2, 1]
    assert first["makespan"] == 33
    assert first["bubble_fraction"] == pytest.approx(3 / 11)


def test_a_scenario_in_seconds_and_bytes(cli: Cli) -> None:
    document = cli("schedules", "--scenario", SMALL, "--only", "gpipe,1f1b", "--json").document
    assert document["time_unit"] == "s"
    assert {"step_time_s", "peak_allocated_bytes", "fit"} <= document["schedules"][0].keys()
    assert "step time" in cli("schedules", "--scenario", SMALL, "--only", "1f1b").out


def test_a_picture_has_a_panel_a_schedule(cli: Cli, tmp_path: Path) -> None:
    picture = tmp_path / "all.svg"
    done = cli("schedules", "-o", picture, "--until", 20)
    assert (done.code, done.err) == (0, f"picture written to {picture}\n")
    two = ("schedules", "--only", "1f1b,zb_v", "--until", 20, "-o")
    cli(*two, picture)
    cli(*two, tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_bytes() == picture.read_bytes()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--only", "1f1"], "--only '1f1' is no schedule (did you mean '1f1b'?)"),
        (["--only", "Q" * 5000], f"--only '{'Q' * 77}...' is no schedule"),
        (["--pp", 4, "-m", 10**9], "name fewer schedules (--only), or smaller sizes"),
        (["--pp", 3, "--v", 10**9], "more than the 200,000 of a table"),
        (["-m", 8, "--v", 1000], "more than the 200,000 of a table"),
        (["--scenario", SMALL, "--v", 10**9], "more than the 200,000 of a table"),
        (["--times", "1,2"], "--times '1,2' must be three or four numbers F,I,W[,MESSAGE]"),
        (["--times", "1,x,2"], "must be three or four numbers"),
        (["--times=-1,1,1"], "allowed are finite lengths from 0 on"),
        (["--pp", 1], "pp=1: a pipeline has at least 2 ranks"),
        (["--pp", 4, "-m", 0], "num_microbatches=0 is too small"),
        (["--until", 5], "--until 5 ends a picture; give its file with -o x.png"),
        (["--set", "plan.pp=2"], "--set changes a scenario; give one with --scenario"),
        (["--scenario", SMALL, "--pp", 4], "are those of the scenario's plan"),
        (["-o", "x.pdf"], "suffix '.pdf'; allowed: .png, .svg"),
        (["-o", "x.png", "--until", -1], "until=-1.0 s cannot end a picture"),
    ],
)
def test_bad_input(cli: Cli, words: list[object], message: str) -> None:
    done = cli("schedules", *words)
    assert done.code == 2
    assert message in done.err
    assert done.out == ""


def test_auto_writes_an_order_no_worse_than_the_named(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "auto.csv"
    document = cli("schedules", "--scenario", SMALL, "--auto", file, "--json").document
    assert document["schema_version"] == 1
    times = {**document["named_step_time_s"], **document["found_step_time_s"]}
    assert document["step_time_s"] == min(times.values())
    assert document["found_step_time_s"]["auto"] <= document["named_step_time_s"]["1f1b"] * (
        1 + 1e-9
    )
    words = [
        "--set",
        f"plan.schedule={file}",
        "--set",
        f"plan.stage_layers={document['stage_layers']}",
    ]
    for chosen in (words, ["--set", "plan.schedule=auto"]):
        simulated = cli("simulate", SMALL, *chosen, "--json").document
        assert simulated["step_time_s"] == pytest.approx(document["step_time_s"], rel=1e-12)
    shown = cli("schedules", "--scenario", SMALL, "--auto", file)
    assert "micro-batches in flight that fit, by rank: " in shown.out
    assert "use it: --set plan.v=1 --set plan.schedule=" in shown.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--auto", "x.csv"], "--auto orders the stages of a plan; give one with --scenario"),
        (["--auto", "x.txt", "--scenario", SMALL], "a schedule's file ends with .csv"),
        (
            ["--auto", "x.csv", "--scenario", SMALL, "-o", "x.png"],
            "--output stands beside no --auto",
        ),
        (
            ["--auto", "x.csv", "--scenario", SMALL, "--only", "1f1b"],
            "--only stands beside no --auto",
        ),
        (["--only", "auto"], "--only 'auto' orders the stages of a plan; give one with --scenario"),
        (["--time-limit", 3], "--time-limit 3 must be above 0 and stand beside --auto"),
        (["--auto", "x.csv", "--scenario", SMALL, "--time-limit", 0], "must be above 0"),
        (
            ["--auto", "x.csv", "--scenario", SMALL, "--set", "plan.pp=1"],
            "pp=1: the plan has no pipeline to order",
        ),
    ],
)
def test_bad_input_of_auto(cli: Cli, words: list[object], message: str) -> None:
    done = cli("schedules", *words)
    assert done.code == 2
    assert message in done.err
