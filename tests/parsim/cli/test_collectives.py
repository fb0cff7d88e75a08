"""`parsim validate --collectives`: text, document, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import Cli

HEAD = "row_id,gpu_type,n_nodes,gpus_per_node,collective,message_bytes,time_us\n"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """One row that can be predicted, one that cannot."""
    path = tmp_path / "mine.csv"
    path.write_text(HEAD + "a,H100,1,8,all_reduce,1e9,4030\nb,TPU,1,8,all_reduce,1e9,4030\n")
    return path


def test_errors_by_group_and_size(cli: Cli, table: Path) -> None:
    done = cli("validate", "--collectives", table)
    assert done.code == 0
    for entry in (
        "calibrated: groups that the catalog has a measured curve of",
        "uncalibrated: topology and constants alone",
        "NVLink domain",
        "> 64 MiB",
        "skipped: 1 x GPU 'TPU' is in no system of the catalog",
    ):
        assert entry in done.out
    assert done.err == "note: system '', GPU 'H100': taken as dgx-h100\n"


def test_every_row(cli: Cli, table: Path) -> None:
    out = cli("validate", "--collectives", table, "--verbose").out
    assert "all_reduce" in out
    assert "1 x 8" in out


def test_one_document(cli: Cli, table: Path) -> None:
    document = cli("validate", "--collectives", table, "--json").document
    assert document["schema_version"] == 1
    good, bad = document["rows"]
    assert (good["status"], bad["status"]) == ("ok", "skipped")
    assert good["calibrated_error"] == pytest.approx(0.0, abs=0.1)
    assert {line["mode"] for line in document["summary"]} == {"calibrated", "uncalibrated"}
    alone = cli("validate", "--collectives", "--uncalibrated", table, "--json").document
    assert {line["mode"] for line in alone["summary"]} == {"uncalibrated"}


def test_the_shipped_tables_are_the_default(cli: Cli) -> None:
    document = cli("validate", "--collectives", "--json").document
    assert len(document["rows"]) == 572


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--uncalibrated",), "--uncalibrated is for collectives; add --collectives"),
        (("--collectives", "--report", "x.md"), "that report comes from make fit-collectives"),
        (("--collectives", "none.csv"), "none.csv: no such file"),
    ],
)
def test_what_it_refuses(cli: Cli, words: tuple[str, ...], message: str) -> None:
    done = cli("validate", *words)
    assert done.code == 2
    assert done.err.startswith("error: ")
    assert message in done.err
