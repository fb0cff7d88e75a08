"""What a running plan tells: each note and each step once, whole lines only."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from parsim.launch.news import STEPS, News


def test_notes_are_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "errors" / "attempt0"
    folder.mkdir(parents=True)
    news = News(out=tmp_path, told={"note: known"})
    (folder / "checkpoint-1.note").write_text("known\n")
    (folder / "restart-2.note").write_text("new\n")
    news.tell()
    news.tell()
    assert capsys.readouterr().err == "note: new\n"


def test_steps_of_this_run_in_whole_lines(tmp_path: Path) -> None:
    path, told = tmp_path / STEPS, list[Mapping[str, Any]]()
    path.write_text('{"step": 0}\n')  # of the run that this one goes on from
    news = News(out=tmp_path, step=told.append)
    with path.open("a") as file:
        file.write('{"step": 1}\n{"st')
        file.flush()
        news.tell()
        assert told == [{"step": 1}]
        file.write('ep": 2}\n')
    news.tell()
    news.tell()
    assert told == [{"step": 1}, {"step": 2}]


def test_nothing_there_yet(tmp_path: Path) -> None:
    told = list[Mapping[str, Any]]()
    News(out=tmp_path / "none", step=told.append).tell()
    assert not told
