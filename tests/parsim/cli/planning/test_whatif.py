"""`parsim sweep`, and `parsim compare` of plans."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from parsim.sweeps import Outcome, SweepCase, run
from tests.commands import GPT3, LLAMA, Cli

OVER = ("--over", "plan.recompute=none,full")


def test_a_sweep_its_table_and_its_picture(cli: Cli, tmp_path: Path) -> None:
    table, picture = tmp_path / "s.csv", tmp_path / "s.png"
    done = cli("sweep", LLAMA, *OVER, "-o", str(table), "--picture", str(picture))
    assert done.code == 0
    assert done.out.splitlines()[0].split()[:2] == ["recompute", "plan"]
    shared = next(line for line in done.out.splitlines() if line.startswith("all plans: "))
    assert "tp1" in shared.split()
    assert "recompute-full" not in shared
    assert sum("recompute-full" in line for line in done.out.splitlines()[:4]) == 1
    assert len(table.read_text(encoding="utf-8").splitlines()) == 3
    assert picture.read_bytes().startswith(b"\x89PNG")
    document = cli("sweep", LLAMA, *OVER, "--json").document
    assert [row["plan.recompute"] for row in document["rows"]] == ["none", "full"]
    assert document["rows"][0]["days"] is None


def test_plans_side_by_side(cli: Cli) -> None:
    done = cli("compare", GPT3, LLAMA, GPT3)
    assert done.code == 0
    assert done.out.count("gpt3-175b-dgx-a100") >= 2
    assert len(cli("compare", GPT3, LLAMA, "--json").document["rows"]) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("sweep", LLAMA, "--over", "x"), "must be KEY=A,B,..."),
        (
            ("sweep", LLAMA, *OVER, "-o", "x.txt"),
            "cannot write a table to x.txt; allowed: .csv, .parquet",
        ),
        (
            ("sweep", LLAMA, *OVER, "--backend", "lok"),
            "--backend 'lok' is unknown (did you mean 'loky'?)",
        ),
        (("sweep", LLAMA, *OVER, "--part", "3/2"), "--part '3/2' must be one of several"),
        (("sweep", LLAMA, *OVER, "--picture", "x.gif"), "suffix '.gif'"),
        (("compare", LLAMA), "compare takes two timelines (.json), or two and more plans"),
    ],
)
def test_what_is_refused(cli: Cli, words: tuple[str, ...], message: str) -> None:
    done = cli(*words)
    assert done.code == 2
    assert message in done.err


def test_an_unknown_field_is_told_in_each_row_and_ends_with_the_first_reason(cli: Cli) -> None:
    done = cli("sweep", LLAMA, "--over", "plan.tq=1,2", "--json")
    assert done.code == 2
    assert all("plan.tq" in row["error"] for row in done.document["rows"])
    assert "2 cases, none of which can be; the first: --set plan.tq=1 plan.tq is an" in done.err


def test_one_case_that_can_be_is_enough(cli: Cli) -> None:
    done = cli("sweep", LLAMA, "--over", "plan.tp=1,3", "--set", "plan.dp=null")
    assert (done.code, done.err) == (0, "")
    assert "tp=3 does not divide" in done.out


@pytest.mark.parametrize(
    ("words", "missing", "extra"),
    [
        (("--backend", "loky"), "joblib", "sweeps"),
        (("--backend", "ray"), "joblib", "ray"),
        (("--backend", "dask", "--jobs", "2"), "joblib", "dask"),
        (("-o", "s.parquet"), "pyarrow", "parquet"),
    ],
)
def test_a_missing_package_is_told_with_its_extra(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], missing: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    done = cli("sweep", LLAMA, *OVER, *words)
    assert (done.code, done.out) == (2, "")
    assert f"{' '.join(words[:2])} needs {missing}, which is not installed" in done.err
    assert f"pip install '.[{extra}]'" in done.err


def test_ctrl_c_keeps_the_rows_and_the_same_command_goes_on(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    table, picture = tmp_path / "s.csv", tmp_path / "s.png"
    swept = ("sweep", LLAMA, "--over", "training.global_batch_size=8,16,24")
    words = (*swept, "-o", str(table), "--picture", str(picture))
    real = run._run

    def interrupted_at_the_second(pair: tuple[SweepCase, str]) -> Outcome:
        if pair[0].values["training.global_batch_size"] == "16":
            raise KeyboardInterrupt
        return real(pair)

    monkeypatch.setattr(run, "_run", interrupted_at_the_second)
    done = cli(*words)
    assert done.code == 130
    assert f"interrupted after 1 of 3 cases; the same command goes on from {table}" in done.err
    assert "interrupted: 1 of 3 cases" in done.out
    assert len(table.read_text(encoding="utf-8").splitlines()) == 2
    monkeypatch.setattr(run, "_run", real)
    again = cli(*words)
    assert again.code == 0
    assert f"{table} has 1 of 3 cases; they are not run again" in again.err
    alone = cli(*swept, "--json").document["rows"]
    assert [row["step_time_s"] for row in alone] == [
        float(line.split(",")[4]) for line in table.read_text(encoding="utf-8").splitlines()[1:]
    ]
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["s.csv", "s.png"]


def test_ctrl_c_before_the_first_row(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(pair: tuple[SweepCase, str]) -> Outcome:
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "_run", interrupted)
    done = cli("sweep", LLAMA, *OVER, "--picture", "never.png")
    assert done.code == 130
    assert "interrupted after 0 of 2 cases" in done.err


def test_rows_not_reached_again_stay_in_the_table(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    table = tmp_path / "s.csv"
    cli("sweep", LLAMA, "--over", "plan.recompute=none", "-o", str(table))

    def interrupted(pair: tuple[SweepCase, str]) -> Outcome:
        raise KeyboardInterrupt

    before = table.read_text(encoding="utf-8")
    monkeypatch.setattr(run, "_run", interrupted)
    done = cli("sweep", LLAMA, "--over", "plan.recompute=full,none", "-o", str(table))
    assert done.code == 130
    assert table.read_text(encoding="utf-8") == before


def test_parquet_goes_on_as_csv_does(cli: Cli, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    table = tmp_path / "s.parquet"
    cli("sweep", LLAMA, "--over", "plan.recompute=none", "-o", str(table))
    done = cli("sweep", LLAMA, *OVER, "-o", str(table), "--json")
    assert "has 1 of 2 cases" in done.err
    rows = parquet.ParquetFile(table).read(use_threads=False).to_pylist()
    assert rows == done.document["rows"]
    other = cli("sweep", LLAMA, "--over", "plan.tp=1,2", "-o", str(table))
    assert (other.code, "is no table of this sweep" in other.err) == (2, True)
    table.write_text("junk", encoding="utf-8")
    assert cli("sweep", LLAMA, *OVER, "-o", str(table)).code == 2
