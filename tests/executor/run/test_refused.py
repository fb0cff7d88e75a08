"""What the executor refuses before any rank starts: each with one line and exit code 2."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from executor.devices.machine import DeviceReport
from executor.run import command
from executor.run.checks import check_plan
from parsim.cli.app import main
from parsim.errors import PlanError
from parsim.launch.options import RunOptions
from parsim.scenario import load_scenario
from tests.executor.running import SCENARIO
from tests.executor.word_file import word_file


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(SCENARIO)
    monkeypatch.setattr("executor.devices.machine.probe", two_cores)
    return path


def two_cores(kind: str | None = None, *, nodes: int = 1) -> DeviceReport:
    assert kind in (None, "cpu")
    return DeviceReport(
        kind="cpu", backend="gloo", count=2, names=("cpu",), shareable=True, nodes=nodes
    )


def asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: object
) -> tuple[int, str]:
    """Exit code and last line of `python -m executor`, outside torchrun."""
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setattr(sys, "argv", ["executor", *map(str, words)])
    code = command.main()
    return code, capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "text: no such file; name a text file or a folder of text files"),
        (b"", "text: there is no text in it; name a file with text"),
        (b"\xff\xfeh\x00", "text: is not UTF-8 text: byte 0xff at 0"),
        (
            b"short",
            "text: 5 tokens are fewer than seq_len + 1 = 33; use a longer text or seq_len <= 4",
        ),
    ],
)
def test_data(
    scenario: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    content: bytes | None,
    message: str,
) -> None:
    if content is not None:
        (tmp_path / "text").write_bytes(content)
    told = asked(monkeypatch, capsys, scenario, "--data", tmp_path / "text")
    assert told == (2, f"error: {tmp_path}/{message}")


def test_a_tokenizer_with_more_words_than_the_model(
    scenario: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words_of_file = {"type": "WordLevel", "vocab": {"a": 0, "[UNK]": 300}, "unk_token": "[UNK]"}
    path = word_file(tmp_path, model=words_of_file)
    words = ["--tokenizer", path, "--data", tmp_path / "text"]
    (tmp_path / "text").write_text("a b " * 99)
    told = asked(monkeypatch, capsys, scenario, *words)
    assert told == (
        2,
        f"error: gpt2: vocab_size=256 is below the 301 tokens of {tmp_path}/text with {path}; "
        "use vocab_size >= 301, or another tokenizer",
    )
    told = asked(monkeypatch, capsys, scenario, *words, "--set", "model.vocab_size=301")
    assert told == (0, "tp1 pp2 dp1 mb2 m4 1f1b on 2 x cpu (cpu), backend gloo")


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (
            1,
            "world size 8 (pp=2 x dp=1 x cp=1 x tp=4) is more than the 2 CPU cores of this "
            "machine; what fits: pp=1 x dp=1 x cp=1 x tp=2 = 2; or share the devices ",
        ),
        (
            2,
            "world size 8 (pp=2 x dp=1 x cp=1 x tp=4) on 2 nodes, 4 on each, is more than the 2 "
            "CPU cores of this machine; what fits: pp=1 x dp=1 x cp=1 x tp=4 = 4; or share the ",
        ),
        (3, "--nnodes=3 does not divide world size 8, and every node holds equally many ranks; "),
        (0, "--nnodes=0 must be at least 1"),
    ],
)
def test_more_ranks_than_devices(
    scenario: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    nodes: int,
    message: str,
) -> None:
    (tmp_path / "wide.yaml").write_text("systems:\n  wide: {from: cpu, devices_per_node: 8}\n")
    change = ["cluster.system=wide", f"cluster.catalog=[{tmp_path}/wide.yaml]", "plan.tp=4"]
    words = [word for pair in change for word in ("--set", pair)]
    code, told = asked(monkeypatch, capsys, scenario, *words, "--nnodes", nodes)
    assert code == 2
    assert told.startswith(f"error: {message}")


def test_the_command_line_passes_a_refusal_on(
    scenario: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["run", str(scenario), "--data", str(tmp_path / "text"), "--out", str(out)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == (
        f"error: {tmp_path}/text: no such file; name a text file or a folder of text files\n"
    )
    assert not out.exists()


@pytest.mark.parametrize("name", ["asynchronous_server", "asynchronous_gossip", "data_parallel"])
def test_a_strategy_that_needs_a_cpu(tmp_path: Path, name: str) -> None:
    path = tmp_path / "plan.yaml"
    plan = f"{{dp_replicate: 2, microbatch_size: 2, strategy: {{name: {name}}}}}"
    path.write_text(SCENARIO.replace(SCENARIO.splitlines()[-1], f"plan: {plan}"))
    gpus = DeviceReport(kind="cuda", backend="nccl", count=2, names=("GPU",), shareable=False)
    with pytest.raises(PlanError, match=f"strategy.name={name} .* --device cpu"):
        check_plan(load_scenario(path), gpus, RunOptions())
