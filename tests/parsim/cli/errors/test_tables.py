"""Tables of measured runs that are wrong: the message, the exit code, never a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsim.validation.step.row_reader import REQUIRED
from tests.commands import Cli, write_rows


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"n_layers": "many"}, "n_layers='many' is not a whole number"),
        ({"n_layers": "nan"}, "n_layers='nan' is not a whole number from 0 to 1,000,000,000"),
        ({"n_layers": "inf"}, "n_layers='inf' is not a whole number from 0 to 1,000,000,000"),
        ({"n_layers": "1e300"}, "n_layers='1e300' is not a whole number from 0 to 1,000,000,000"),
        ({"step_time_s": "-1"}, "step_time_s='-1' must be a number from 1e-15 to 1e+15"),
        ({"dp": "7"}, "tp x pp x dp = 7 differs from n_gpus = 32"),
    ],
)
def test_a_row_of_garbage_is_skipped(
    cli: Cli, tmp_path: Path, change: dict[str, str], reason: str
) -> None:
    table = write_rows(tmp_path / "mine.csv", {}, change)
    done = cli("validate", table, "--json")
    good, bad = done.document["rows"]
    assert done.code == 0
    assert (good["status"], bad["status"], bad["reason"]) == ("ok", "skipped", reason)
    assert reason in cli("validate", table).out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty file; expected a header with " + ", ".join(REQUIRED)),
        (b"\n \n", "empty file; expected a header with " + ", ".join(REQUIRED)),
        (b"row_id,stack\nx,y\n", "columns missing: " + ", ".join(REQUIRED[2:])),
        (",".join(REQUIRED).encode(), "no rows below the header"),
        (b"\xff\xfe\x00\x01", "is not UTF-8 text: byte 0xff at 0"),
    ],
    ids=["empty", "blank", "columns missing", "no rows", "binary"],
)
def test_a_table_that_cannot_be_read(
    cli: Cli, tmp_path: Path, content: bytes, message: str
) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    done = cli("validate", tmp_path / "t.csv")
    assert done == (2, "", f"error: {tmp_path}/t.csv: {message}\n")


def test_a_table_of_which_no_row_can_be_predicted(cli: Cli, tmp_path: Path) -> None:
    """The reasons are shown first; a table with one good row is a result."""
    table = write_rows(tmp_path / "t.csv", {"tp": ""}, {"tp": "x"}, {"tp": ""})
    good = write_rows(tmp_path / "good.csv", {})
    told = "error: t: none of 3 rows could be predicted; tp is not stated\n"
    for tables in ([table], [good, table]):
        done = cli("validate", *tables)
        assert (done.code, done.err) == (2, told)
        assert "tp='x' is not a whole number" in done.out
    document = cli("validate", table, "--json")
    assert document.code == 2
    assert len(document.document["rows"]) == 3
    assert cli("validate", good).code == 0


@pytest.mark.parametrize(
    ("option", "header"),
    [
        ("--kernels", "row_id,gpu_type,op,dtype,m,n,k,time_us"),
        ("--collectives", "row_id,gpu_type,n_nodes,gpus_per_node,collective,message_bytes,time_us"),
    ],
)
def test_kernels_and_collectives_of_which_no_row_can_be_predicted(
    cli: Cli, tmp_path: Path, option: str, header: str
) -> None:
    table = tmp_path / "t.csv"
    table.write_text(f"{header}\n{','.join('x' for _ in header.split(','))}\n", encoding="utf-8")
    done = cli("validate", option, table)
    assert done.code == 2
    assert done.err.startswith("error: t: none of 1 rows could be predicted; ")


def test_a_table_that_is_no_csv(cli: Cli, tmp_path: Path) -> None:
    table = write_rows(tmp_path / "t.csv", {}, {"model": "x" * 200_000})
    done = cli("validate", table)
    assert done == (2, "", f"error: {table}:3: not CSV: field larger than field limit (131072)\n")


def test_a_folder_or_nothing_instead_of_a_table(cli: Cli, tmp_path: Path) -> None:
    assert cli("validate", tmp_path) == (2, "", f"error: {tmp_path}: is a folder; give one file\n")
    missing = tmp_path / "no.csv"
    assert cli("validate", missing) == (
        2,
        "",
        f"error: {missing}: no such file\n",
    )
