"""`parsim sweep`, and `parsim compare` of plans."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import GPT3, LLAMA, Cli, runner

OVER = ("--over", "plan.recompute=none,full")


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return runner(capsys)


def test_a_sweep_its_table_and_its_picture(cli: Cli, tmp_path: Path) -> None:
    table, picture = tmp_path / "s.csv", tmp_path / "s.png"
    done = cli("sweep", LLAMA, *OVER, "-o", str(table), "--picture", str(picture))
    assert done.code == 0
    assert done.out.splitlines()[0].split()[:2] == ["plan.recompute", "plan"]
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
        (("sweep", LLAMA, *OVER, "-o", "x.txt"), "cannot write a table to x.txt; allowed: .csv"),
        (("sweep", LLAMA, *OVER, "--part", "3/2"), "--part '3/2' must be one of several"),
        (("sweep", LLAMA, *OVER, "--picture", "x.gif"), "suffix '.gif'"),
        (("compare", LLAMA), "compare takes two timelines (.json), or two and more plans"),
    ],
)
def test_what_is_refused(cli: Cli, words: tuple[str, ...], message: str) -> None:
    done = cli(*words)
    assert done.code == 2
    assert message in done.err


def test_an_unknown_field_is_told_in_each_row(cli: Cli) -> None:
    done = cli("sweep", LLAMA, "--over", "plan.tq=1,2", "--json")
    assert done.code == 0
    assert all("plan.tq" in row["error"] for row in done.document["rows"])
