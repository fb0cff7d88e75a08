"""`parsim collectives`: table, document, picture, groups at once, and what it refuses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from tests.commands import LLAMA, ROOT, Cli, heard_signals

ROW = {
    "collective",
    "bytes",
    "algorithm",
    "protocol",
    "time_s",
    "algbw_gb_per_s",
    "busbw_gb_per_s",
    "interval_s",
    "measured_time_s",
}


def check_rows(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        assert set(row) == ROW
        assert isinstance(row["bytes"], int)
        assert row["algbw_gb_per_s"] == pytest.approx(row["bytes"] / row["time_s"] / 1e9)
        low, high = row["interval_s"]
        assert 0 < low < row["time_s"] < high


def test_a_table_for_each_kind(cli: Cli) -> None:
    words = ("--kind", "send_recv,all_reduce", "--sizes", "1KiB..1GiB", "--factor", 1024)
    done = cli("collectives", "--system", "dgx-h100", "--nodes", 2, *words)
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0] == "dgx-h100: 16 ranks on 2 nodes"
    assert [line.strip() for line in lines if line.strip() in ("all_reduce", "send_recv")] == [
        "all_reduce",
        "send_recv",
    ]
    assert sum(line.startswith(("1 KiB", "1 MiB", "1 GiB")) for line in lines) == 6


def test_the_document_is_the_contract(cli: Cli) -> None:
    document = cli("collectives", "--system", "dgx-a100", "--json").document
    assert set(document) == {"schema_version", "system", "n_ranks", "rows"}
    assert (document["schema_version"], document["system"]) == (1, "dgx-a100")
    assert document["n_ranks"] == 8
    assert len(document["rows"]) == 7 * 31
    assert {row["bytes"] for row in document["rows"]} == {8 << i for i in range(31)}
    assert all(row["measured_time_s"] is None for row in document["rows"])
    check_rows(document["rows"])


def test_groups_at_once(cli: Cli) -> None:
    words = ["collectives", "--system", "dgx-1v", "--nodes", "2", "--group", "tp=8,dp=2"]
    words += ["--kind", "all_reduce", "--sizes", "1GiB"]
    text = cli(*words).out
    assert "8 groups of 2 ranks at once, 2 x dgx-1v" in text
    assert "2 groups share nic:0.0->leaf:0" in text
    document = cli(*words, "--json").document
    check_rows(document["rows"])
    concurrent = document["concurrent"]
    assert (concurrent["groups"], concurrent["ranks_per_group"]) == (8, 2)
    (row,) = concurrent["rows"]
    assert row["slowdown"] == pytest.approx(2.0, rel=0.01)
    assert row["time_together_s"] == pytest.approx(row["time_alone_s"] * row["slowdown"])
    assert row["groups_on_link"] == 2


def test_groups_that_share_devices_are_labelled(cli: Cli) -> None:
    words = ("collectives", "--system", "dgx-a100", "--kind", "all_reduce", "--sizes", "1GiB")
    assert "oversubscribed: 2 groups" in cli(*words, "--concurrent", 2).out
    shared = cli(*words, "--concurrent", 4, "--ranks", 2).out
    assert "no link is shared" in shared
    assert "oversubscribed" not in shared


def test_what_it_rests_on(cli: Cli) -> None:
    text = cli("collectives", "--system", "dgx-h100", "--sizes", "1MiB", "-v").out
    assert "rests on: a measured curve of this very group" in text
    assert "rests on: links and constants alone" in text


def test_what_a_forced_algorithm_cannot_do_is_left_out(cli: Cli) -> None:
    done = cli("collectives", "--system", "dgx-h100", "--algorithm", "NVLS", "--json")
    assert {row["collective"] for row in done.document["rows"]} == {"all_reduce"}
    assert {row["algorithm"] for row in done.document["rows"]} == {"nvls"}
    assert "note: nvls cannot do broadcast" in done.err


def test_a_calibrated_file_is_a_system(cli: Cli) -> None:
    file = ROOT / "reports" / "hardware" / "cpu" / "device.yaml"
    document = cli("collectives", "--device", file, "--sizes", "1MiB", "--json").document
    assert document["system"] == "my-cpu-node"
    check_rows(document["rows"])


def test_a_picture(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "curves.svg"
    done = cli("collectives", "--system", "dgx-a100", "--sizes", "1KiB..1GiB", "-o", path)
    assert done.code == 0
    assert f"picture written to {path}" in done.err
    assert path.read_text(encoding="utf-8").startswith("<?xml")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "name a --system"),
        ("--system dgx-h10", "unknown system 'dgx-h10' (did you mean 'dgx-h100'?)"),
        ("--system dgx-h100 --ranks 9", "ranks=9 is more than the 8 devices of 1 x dgx-h100"),
        ("--system dgx-h100 --nodes 2 --ranks 3", "multiples of 2 up to 16"),
        ("--system dgx-h100 --ranks 1", "one rank exchanges nothing"),
        ("--system cpu --nodes 2", "system cpu has no network"),
        ("--system dgx-h100 --sizes 8..1MiB", "bare number 8"),
        ("--system dgx-h100 --sizes 1GiB..1MiB", "1GiB is more than 1MiB"),
        ("--system dgx-h100 --sizes 0.3B", "not a whole number of bytes"),
        ("--system dgx-h100 --sizes 0B", "not a whole number of bytes"),
        ("--system dgx-h100 --sizes much", "not a number with a unit"),
        ("--system dgx-h100 --kind allreduce", "(did you mean 'all_reduce'?)"),
        ("--system dgx-a100 --algorithm nvls", "allowed: ring, tree"),
        ("--system dgx-a100 --kind all_gather --algorithm tree", "allowed: ring"),
        ("--system dgx-a100 --kind send_recv --algorithm ring", "allowed: p2p with Simple"),
        ("--system dgx-h100 --algorithm nvls --protocol LL", "allowed: Simple"),
        ("--system dgx-h100 --algorithm circle", "--algorithm 'circle' is unknown"),
        ("--system dgx-h100 --protocol LL64", "--protocol 'LL64' is unknown"),
        ("--system cpu --protocol LL", "allowed: Simple"),
        ("--system dgx-h100 --group tp=8 --ranks 4", "leave out --ranks and --concurrent"),
        ("--system dgx-h100 --group tp=8,dp=2", "16 ranks, more than the 8 devices"),
        ("--system dgx-h100 --group tp=8,dp", "'dp' is not AXIS=DEGREE"),
        (
            f"--system dgx-h100 --group {'q' * 200}",
            f"--group {'q' * 77}...: '{'q' * 77}...' is not",
        ),
        ("--system dgx-h100 --group tp=2,tp=4", "axis tp stands there twice"),
        ("--system dgx-h100 --concurrent 0", "allowed are 1 to 1024 groups"),
        ("--system dgx-h100 -o x.pdf", "allowed: .png, .svg"),
        ("--system dgx-h100 --device cpu", "without --measure it must be a file"),
        ("--measure --nodes 2", "--measure runs on this machine alone"),
        ("--measure --algorithm ring", "--measure lets the library choose"),
    ],
)
def test_what_it_refuses(cli: Cli, words: str, message: str) -> None:
    done = cli("collectives", *words.split())
    assert done.code == 2
    assert message in done.err
    assert done.out == ""


def test_measuring_without_torch(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parsim.launch.ranks.find_spec", lambda name: None)
    done = cli("collectives", "--measure")
    assert done.code == 2
    assert "install it with: pip install 'torch>=2.11'" in done.err


@pytest.mark.parametrize(
    ("words", "changes", "message"),
    [
        ("", {"most_ranks": 1}, "a collective needs two ranks"),
        ("--ranks 2 --concurrent 9", {}, "9 groups of 2 ranks are 18, more than the 16"),
        ("--ranks 3", {}, "ranks=3 is more than the 2 devices"),
        ("--system dgx-h100", {}, "--system dgx-h100 uses nccl-2.23, this machine gloo"),
        ("", {"system": None}, "no system of the catalog has the GPU Some GPU"),
    ],
)
def test_what_cannot_be_measured_here(
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    changes: dict[str, Any],
    message: str,
) -> None:
    here = {"kind": "cpu", "backend": "gloo", "count": 2, "most_ranks": 16}
    here |= {"hardware": "Some GPU", "system": "cpu", **changes}
    monkeypatch.setattr("parsim.launch.measuring.collectives_hardware", lambda device: here)
    done = cli("collectives", "--measure", *words.split())
    assert done.code == 2
    assert message in done.err


@pytest.mark.distributed
def test_two_ranks_of_this_machine(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    sizes = ("--sizes", "6B,64KiB", "--time-limit", 120)
    done = cli("collectives", "--measure", "--device", "cpu", "--json", *sizes)
    assert done.code == 0
    rows = done.document["rows"]
    check_rows(rows)
    assert "1 sizes are no multiple of 8 B" in done.err
    assert all(row["measured_time_s"] is None for row in rows if row["bytes"] == 6)
    timed = [row for row in rows if row["bytes"] > 6]
    assert len(timed) == 7
    assert all(1e-6 < row["measured_time_s"] < 10.0 for row in timed)
    measurement = done.document["measurement"]
    assert (measurement["backend"], measurement["world_size"]) == ("gloo", 2)
    assert all(0 <= row["mad_s"] <= row["time_s"] for row in measurement["rows"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.distributed
def test_an_interrupt_ends_the_ranks_and_leaves_nothing(tmp_path: Path) -> None:
    with heard_signals():
        process = subprocess.Popen(
            [*(sys.executable, "-m", "parsim", "collectives", "--measure", "--device", "cpu")],
            env=os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
    end = time.monotonic() + 60.0
    while time.monotonic() < end and not list(tmp_path.glob("parsim-collectives-*/log.txt")):
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, text = process.communicate(timeout=30)
    assert process.returncode == 130
    assert b"interrupted" in text
    assert list(tmp_path.glob("parsim-collectives-*")) == []


def test_a_reason_is_not_cut_silently(cli: Cli) -> None:
    done = cli("sweep", LLAMA, "--over", "plan.tp=1,3")
    assert "num_attention_heads=32; allowed: 1, 2, 4, 8, 16, 32" in " ".join(done.out.split())
    longer = cli("sweep", LLAMA, "--over", f"plan.schedule=1f1b,{'x' * 60}").out
    assert "..." in " ".join(longer.split())
