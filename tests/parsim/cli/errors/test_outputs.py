"""Output paths that cannot be written: the message, the exit code, never a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import SMALL, Cli, write_rows


@pytest.mark.parametrize("suffix", ["png", "svg", "html", "json"])
def test_a_picture_below_a_file(cli: Cli, tmp_path: Path, suffix: str) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "sub" / f"x.{suffix}"
    done = cli("timeline", SMALL, "-o", path)
    assert done == (2, "", f"error: {path}: cannot write: {path.parent} is not a folder\n")


@pytest.mark.parametrize("suffix", ["png", "svg", "html", "json"])
def test_a_picture_where_a_folder_is(cli: Cli, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x.{suffix}"
    path.mkdir()
    done = cli("timeline", SMALL, "-o", path)
    assert done == (2, "", f"error: {path}: cannot write: Is a directory\n")


def test_a_plan_and_a_report_below_a_file(cli: Cli, tmp_path: Path) -> None:
    table = write_rows(tmp_path / "t.csv", {})
    path = table / "x"
    message = f"error: {path}: cannot write: {table} is not a folder\n"
    saved, report = cli("search", SMALL, "--save", path), cli("validate", table, "--report", path)
    assert (saved.code, saved.err) == (report.code, report.err) == (2, message)
    assert saved.out == report.out == ""  # refused before the work, not after it


def test_an_unknown_form_of_picture(cli: Cli, tmp_path: Path) -> None:
    done = cli("timeline", SMALL, "-o", tmp_path / "x.bmp")
    assert done == (
        2,
        "",
        f"error: {tmp_path}/x.bmp: unknown form '.bmp'; allowed: .png, .svg, .html, .json\n",
    )


@pytest.mark.parametrize("until", ["-1", "0", "nan", "inf"])
def test_a_picture_that_ends_before_it_begins(cli: Cli, tmp_path: Path, until: str) -> None:
    done = cli("timeline", SMALL, "-o", tmp_path / "x.png", "--until", until)
    assert done.code == 2
    assert done.err == (
        f"error: until={float(until)} s cannot end a picture; allowed: more than 0 s, finite\n"
    )
