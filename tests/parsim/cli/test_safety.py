"""What a hostile or slipped input may not do: run a command, take hours or memory, lose a file."""

from __future__ import annotations

import csv
import json
import subprocess
from io import StringIO
from pathlib import Path

import pytest

from parsim.api import validate
from parsim.errors import LONGEST_VALUE
from parsim.report.accuracy.files import accuracy_rows
from parsim.report.writing import csv_text
from tests.commands import LLAMA, ROOT, SMALL, Cli, settings, write_rows

SHARED = str(ROOT / "scenarios" / "llama2-7b-shared-fabric.yaml")
OWN = ROOT / "scenarios" / "gpt2-zero-bubble-cpu.yaml"


# --------------------------------------------------------------------------- commands and formulas


def test_a_schedule_cannot_write_a_command_into_a_script(cli: Cli, tmp_path: Path) -> None:
    folder, trap = tmp_path / "runs", tmp_path / "trap"
    folder.mkdir()
    name = f"a\ntouch '{trap.name}' #\n.csv"
    (folder / name).write_text(OWN.with_suffix(".csv").read_text())
    scenario = folder / "s.yaml"
    text = OWN.read_text().replace("gpt2-zero-bubble-cpu.csv", json.dumps(name))
    scenario.write_text(text)
    done = cli("run", scenario, "--emit", "torchrun", "--out", tmp_path / "out")
    assert done.code == 0
    assert r"a\ntouch" in done.out.splitlines()[1]
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    environment = {"PATH": "/usr/bin:/bin", "PYTHON": str(program)}
    subprocess.run(["bash", "-c", done.out], cwd=tmp_path, env=environment, check=True)
    assert not trap.exists()


def test_a_cell_that_a_spreadsheet_would_run(tmp_path: Path) -> None:
    trap = '=HYPERLINK("http://x";"y")'
    rows = list(csv.DictReader(StringIO(accuracy_rows(validate([write_rows(
        tmp_path / "t.csv", {"row_id": trap, "model": "@x"}
    )])))))  # fmt: skip
    assert rows[0]["row_id"] == f"'{trap}"
    assert not any(cell[:1] in ("=", "@") for row in rows for cell in row.values())
    assert rows[0]["error"].lstrip("-")[0].isdigit(), "numbers stay numbers"


def test_numbers_keep_their_signs() -> None:
    assert csv_text([["-1.5", "+2", "-x", "\t=1", "a-b", ""]]) == "-1.5,+2,'-x,'\t=1,a-b,\n"


def test_a_terminal_is_not_commanded(cli: Cli, tmp_path: Path) -> None:
    done = cli("simulate", SMALL, *settings("model.name=gpt\x1b]0;x\x07"))
    assert done.code == 2
    assert "\x1b" not in done.err
    assert "\x07" not in done.err


# --------------------------------------------------------------------------- files that are read


def test_a_search_does_not_replace_its_scenario(cli: Cli, tmp_path: Path) -> None:
    scenario = tmp_path / "a.yaml"
    scenario.write_text(Path(SMALL).read_text())
    before = scenario.read_text()
    (tmp_path / "link.yaml").symlink_to(scenario)
    for name in ("a.yaml", "link.yaml"):
        done = cli("search", scenario, "--save", tmp_path / name)
        assert done == (
            2,
            "",
            f"error: {tmp_path / name}: would overwrite the input; give another file\n",
        )
    assert scenario.read_text() == before


def test_a_report_does_not_replace_its_table(cli: Cli, tmp_path: Path) -> None:
    table = write_rows(tmp_path / "t.md", {})
    before = table.read_text()
    assert cli("validate", table, "--report", table).code == 2
    assert table.read_text() == before


# --------------------------------------------------------------------------- bounds

SLIPS = {
    "oversubscription": (
        ("simulate", SHARED, *settings("cluster.network.oversubscription=1e300")),
        "must be at most 1000",
    ),
    "layers": (
        ("search", SMALL, *settings("model.num_layers=100000")),
        "num_layers=100000 is above 10000",
    ),
    "nodes": (("collectives", "--system", "dgx-a100", "--nodes", 10**9), "at most 1000000"),
    "graph": (("catalog", "show", "dgx-a100", "--nodes", 10**6), "at most 1000000"),
    "drawn": (("catalog", "show", "dgx-a100", "--nodes", 10**5), "one by one for at most 16384"),
    "contention": (
        (
            *("simulate", SHARED, "--contention"),
            *settings(
                "cluster.nodes=100000", "plan.dp=100000", "training.global_batch_size=200000"
            ),
        ),
        "one by one for at most 16384",
    ),
    "rate": (
        ("simulate", LLAMA, *settings("cluster.network.nic_bandwidth=1e20GB/s")),
        "'1e20GB/s' is not a bandwidth that can be; allowed: 1 to 1e+18 of its base unit",
    ),
}


@pytest.mark.parametrize("case", SLIPS)
def test_a_slip_is_refused_before_the_work(cli: Cli, case: str) -> None:
    words, told = SLIPS[case]
    done = cli(*words)
    assert (done.code, done.out) == (2, "")
    assert told in done.err


def test_a_topology_of_a_billion_devices(cli: Cli, tmp_path: Path) -> None:
    text = "topology: [Ring]\nnpus_count: [1e9]\nbandwidth: [200]\nlatency: [500]\n"
    (tmp_path / "a.yml").write_text(text)
    done = cli("catalog", "import", tmp_path / "a.yml", "--as", "x", "--device", "h100-sxm-80gb")
    assert done.code == 2
    assert "npus_count '1e9' must be a whole number from 1 to 1024" in done.err


@pytest.mark.parametrize("value", [96, "x", {"a": 1}, [1, 2]])
def test_mlp_only_layers_that_are_no_list(cli: Cli, tmp_path: Path, value: object) -> None:
    config = json.loads((ROOT / "tests/parsim/model/configs/qwen3-30b-a3b.json").read_text())
    (tmp_path / "c.json").write_text(json.dumps({**config, "mlp_only_layers": value}))
    block = json.dumps({"config": str(tmp_path / "c.json")})
    done = cli("simulate", LLAMA, *settings(f"model={block}"))
    assert done.code == 2
    assert "mlp_only_layers=" in done.err


def test_a_rate_that_nobody_measured(cli: Cli, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text(
        "row_id,collective,n_gpus,gpus_per_node,gpu_type,message_bytes,n_nodes,busbw_gb_per_s,tool\n"
        "a,all_reduce,8,8,A100,1e6,1,1e308,nccl-tests\n"
    )
    done = cli("validate", "--collectives", table, "-v")
    assert done.code in (0, 2)
    assert (
        "busbw_gb_per_s='1e308' must be a number from 1e-15 to"
        in done.out.replace("\n", " ") + done.err
    )


def test_a_long_word_is_cut(cli: Cli) -> None:
    for words in (("check", SMALL, "Q" * 5000), ("catalog", "show", "cpu", "--nodes", "Q" * 5000)):
        done = cli(*words)
        assert done.code == 2
        assert "Q" * (LONGEST_VALUE + 1) not in done.err


@pytest.mark.parametrize(
    "key",
    ["model.name", "cluster.system", "plan.schedule", "plan.tp", "software", "plan.recompute"],
)
def test_a_long_value_is_cut(cli: Cli, key: str) -> None:
    done = cli("simulate", SMALL, *settings(f"{key}={'Q' * 5000}"))
    assert done.code == 2
    assert "Q" * (LONGEST_VALUE - 3) in done.err
    assert "Q" * (LONGEST_VALUE + 1) not in done.err
