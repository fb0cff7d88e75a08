"""A schedule of the user's own on the command line: from the file to every command's answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands import SMALL, Cli, settings

SPLIT = (
    "0F0,0F1,0I0,0F2,0I1,0W0,0F3,0I2,0W1,0I3,0W2,0W3\n"
    "1F0,1I0,1W0,1F1,1I1,1W1,1F2,1I2,1W2,1F3,1I3,1W3\n"
)
VEE = (
    "0F0,0F1,3F0,3B0,0F2,3F1,3B1,0B0,0F3,3F2,3B2,0B1,3F3,3B3,0B2,0B3\n"
    "1F0,2F0,1F1,2F1,2B0,1B0,1F2,2F2,2B1,1B1,1F3,2F3,2B2,1B2,2B3,1B3\n"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a scenario and its schedule, which is not the working directory."""
    text = Path(SMALL).read_text(encoding="utf-8").replace("schedule: 1f1b", "schedule: own.csv")
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "s.yaml").write_text(text, encoding="utf-8")
    (inside / "own.csv").write_text(SPLIT, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return inside


@pytest.mark.parametrize("schedule", ["naive", "gpipe", "1f1b"])
def test_a_named_schedule_written_and_read_predicts_the_same(
    cli: Cli, folder: Path, schedule: str
) -> None:
    named = settings(f"plan.schedule={schedule}")
    done = cli("check", SMALL, *named, "--write-schedule", "here.csv")
    assert done.code == 0
    assert done.err == "schedule written to here.csv\n"
    expected = cli("simulate", SMALL, *named, "--json").document
    document = cli("simulate", SMALL, *settings("plan.schedule=here.csv"), "--json").document
    assert document["plan"].pop("actions") == Path("here.csv").read_text(encoding="utf-8")
    assert document["plan"].pop("schedule") == "here.csv"
    assert expected["plan"].pop("schedule") == schedule
    assert document == expected


def test_interleaving_written_and_read_predicts_the_same(cli: Cli, folder: Path) -> None:
    named = settings("plan.schedule=interleaved_1f1b", "plan.v=3")
    cli("check", SMALL, *named, "--write-schedule", "here.csv")
    expected = cli("simulate", SMALL, *named, "--json").document
    document = cli("simulate", SMALL, *settings("plan.schedule=here.csv"), "--json").document
    assert document["plan"]["v"] == 3
    assert {**document, "plan": None} == {**expected, "plan": None}


def test_the_file_stands_beside_the_scenario(cli: Cli, folder: Path) -> None:
    done = cli("check", "inside/s.yaml")
    assert done.code == 0
    assert done.out.endswith("  plan     tp1 pp2 dp1 mb1 m4 own.csv\n")
    plan = cli("check", "inside/s.yaml", "--json").document["plan"]
    assert (plan["schedule"], plan["pp"], plan["v"]) == ("inside/own.csv", 2, 1)


def test_with_set_it_stands_in_the_working_directory(cli: Cli, folder: Path) -> None:
    missing = cli("check", "inside/s.yaml", *settings("plan.schedule=own.csv"))
    assert missing == (
        2,
        "",
        "error: --set plan.schedule=own.csv plan.schedule own.csv: no such file\n",
    )
    Path("own.csv").write_text(VEE, encoding="utf-8")
    done = cli("check", "inside/s.yaml", *settings("plan.schedule=own.csv"))
    assert done.out.endswith("  plan     tp1 pp2 dp1 mb1 m4 own.csv v2\n")
    absolute = cli("check", SMALL, *settings(f"plan.schedule={folder / 'own.csv'}"))
    assert absolute.out.endswith("  plan     tp1 pp2 dp1 mb1 m4 own.csv\n")


@pytest.mark.parametrize("text", [SPLIT, VEE])
def test_every_command_takes_it(cli: Cli, folder: Path, text: str) -> None:
    (folder / "own.csv").write_text(text, encoding="utf-8")
    scenario = folder / "s.yaml"
    simulated = cli("simulate", scenario, "--events", "--timeline", "t.json")
    assert simulated.code == 0
    assert "own.csv" in simulated.out
    kinds = {span[2] for span in json.loads(Path("t.json").read_text())["spans"]}
    assert {"F", *("IW" if text == SPLIT else "B")} <= kinds
    assert cli("timeline", scenario, "-o", "t.svg", "--memory", "--critical").code == 0
    assert Path("t.svg").stat().st_size > 1000


def test_a_search_keeps_it_and_what_it_saves_can_be_read_anywhere(cli: Cli, folder: Path) -> None:
    document = cli("search", folder / "s.yaml", "--save", "best.yaml", "--json").document
    assert {entry["plan"]["schedule"] for entry in document["plans"]} == {str(folder / "own.csv")}
    (folder / "else").mkdir()
    best = Path("best.yaml").rename(folder / "else" / "best.yaml")
    step = cli("simulate", best, "--json").document["step_time_s"]
    assert step == pytest.approx(document["plans"][0]["step_time_s"], rel=1e-12)


def test_a_search_that_names_schedules_does_not(cli: Cli, folder: Path) -> None:
    named = settings("search.schedule=gpipe", "search.pp=2")
    document = cli("search", folder / "s.yaml", *named, "--json").document
    assert {entry["plan"]["schedule"] for entry in document["plans"]} == {"gpipe"}


def test_communication_of_its_own_is_not_what_is_predicted(cli: Cli, folder: Path) -> None:
    bare = cli("simulate", folder / "s.yaml", "--json").document
    text = "".join(f"{line},{rank}REDUCE_GRAD\n" for rank, line in enumerate(SPLIT.splitlines()))
    (folder / "own.csv").write_text(text, encoding="utf-8")
    done = cli("simulate", folder / "s.yaml", "--json")
    assert "own.csv has communication of its own: it is run as it stands, but a predict" in done.err
    assert {**done.document, "plan": None} == {**bare, "plan": None}


# ------------------------------------------------------------------------------------ bad input

STUCK = "0F0,0B0,0F1,0B1,0F2,0B2,0F3,0B3\n1F1,1F0,1B0,1B1,1F2,1F3,1B2,1B3\n"
SWAPPED = (
    "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
    "1RECV_F1,1F1,1RECV_F0,1F0,1B0,1SEND_B0,1B1,1SEND_B1\n"
)
WRONG = {
    "unparsable": (SPLIT.replace("1F2", "one"), "own.csv:2, cell 7: 'one' is not an action; e"),
    "unknown kind": (SPLIT.replace("1F2", "1G2"), "own.csv:2, cell 7: '1G2' is not an action"),
    "missing": (SPLIT.replace("1F2,", ""), "own.csv:2, cell 7: rank 1 runs 1I2 without 1F2"),
    "double": (SPLIT.replace("1F2", "1F1"), "own.csv:2, cell 7: rank 1 runs 1F1 twice; each micro"),
    "never ends": (
        STUCK,
        "own.csv: deadlock with buffered sends: rank 0 waits at 0B0 for rank 1 to run 1B0; "
        "rank 1 waits at 1F1 for rank 0 to run 0F1 (0B0: line 1, cell 2; 1F1: line 2, cell 1)",
    ),
    "swapped messages": (
        SWAPPED,
        "own.csv: message 0 from rank 0 to rank 1 is sent as 0SEND_F0 and received as "
        "1RECV_F1; messages between two ranks are matched by order, so both must be in the same "
        "order (0SEND_F0: line 1, cell 2; 1RECV_F1: line 2, cell 1)",
    ),
    "three ranks": (
        "0F0,0B0\n1F0,1B0\n2F0,2B0\n",
        "own.csv: has 3 rows, one for each pipeline rank, but pp=2; use pp=3, or leave pp out",
    ),
    "stages not a multiple": (
        "0F0,0B0\n1F0,2F0,2B0,1B0\n",
        "own.csv: 3 stages on 2 ranks; a plan cuts the model into pp x v stages, so their number "
        "must be a multiple of 2 (they may be on any rank)",
    ),
    "empty": ("\n\n", "own.csv: no actions; expected one row of actions per pipeline rank"),
    "endless cell": ("0" * 200_000, "own.csv: cannot be read as CSV: field larger than"),
}


@pytest.mark.parametrize("command", ["check", "simulate", "search", "timeline", "run"])
@pytest.mark.parametrize("case", WRONG)
def test_files_that_are_wrong(cli: Cli, folder: Path, command: str, case: str) -> None:
    text, message = WRONG[case]
    (folder / "own.csv").write_text(text, encoding="utf-8")
    done = cli(command, "inside/s.yaml", *(["-o", "x.png"] if command == "timeline" else []))
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: inside/s.yaml:25:3 plan.schedule inside/{message}")
    assert done.err.count("\n") == 1
    assert not Path("x.png").exists()
    assert not Path("build").exists()


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (
            ["plan.v=2"],
            "inside/s.yaml:25:3 plan.schedule inside/own.csv: has 2 stages on 2 ranks, "
            "but v=2; use v=1, or leave v out",
        ),
        (
            ["training.global_batch_size=8"],
            "inside/s.yaml:25:3 plan schedule='inside/own.csv' has "
            "4 micro-batches, but global_batch_size=8 / (microbatch_size=1 x dp=1) = 8; use "
            "global_batch_size=4, or a schedule of 8 (with --set training.global_batch_size=8)",
        ),
        (
            ["search.pp=1"],
            "--set search.pp=1 search.pp leaves out 2, that of the plan's own "
            "schedule inside/own.csv; add it, or name schedules to search, e.g. 'schedule: 1f1b'",
        ),
        (
            ["search.schedule=own.csv"],
            "--set search.schedule=own.csv search.schedule 'own.csv' "
            "is unknown; nearest of 20: naive, looped_bfs, zb_v, auto, interleaved_1f1b (all of "
            "them: parsim catalog schedules); a file belongs in plan.schedule, and a search "
            "without 'schedule' keeps it",
        ),
    ],
)
def test_what_does_not_fit_it(cli: Cli, folder: Path, pairs: list[str], message: str) -> None:
    done = cli("check", "inside/s.yaml", *settings(*pairs))
    assert done == (2, "", f"error: {message}\n")


def test_a_pipeline_of_one_rank(cli: Cli, folder: Path) -> None:
    (folder / "own.csv").write_text("0F0,0F1,0B0,0B1\n", encoding="utf-8")
    done = cli("check", "inside/s.yaml", *settings("plan.pp=null"))
    assert (done.code, done.out) == (2, "")
    assert "plan schedule='inside/own.csv' needs pp >= 2, but pp=1: without a pipeline" in done.err


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("x.txt", "x.txt: unknown form '.txt' of a schedule; allowed: .csv"),
        ("no.csv/x.csv", "no.csv/x.csv: cannot write: no.csv is not a folder"),
    ],
)
def test_a_schedule_that_cannot_be_written(
    cli: Cli, folder: Path, output: str, message: str
) -> None:
    Path("no.csv").write_text("", encoding="utf-8")
    done = cli("check", SMALL, "--write-schedule", output)
    assert (done.code, done.err) == (2, f"error: {message}\n")
