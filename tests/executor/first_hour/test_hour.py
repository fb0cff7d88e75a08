"""What the parts of the first hour run on which machine, and what is asked before they begin."""

from __future__ import annotations

import json
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

from executor.first_hour.__main__ import PARTS, main
from executor.first_hour.hour import parts_of
from executor.first_hour.needs import ALWAYS, FOR_TESTS, missing
from executor.first_hour.parts import SECONDS_LEFT, HourPart, HourParts, archived
from executor.first_hour.sharing import main as staged
from executor.suite.__main__ import main as suite
from executor.suite.machine import SHARING, Machine
from parsim.errors import InputError
from parsim.launch import measuring

H200 = Machine(
    kind="cuda",
    backend="nccl",
    count=1,
    names=("NVIDIA H200",),
    torch="2.11.0",
    cuda="13.0",
    nccl=(2, 28, 9),
    python="3.12.3",
    load=0.0,
)
CPU = replace(H200, kind="cpu", backend="gloo", names=("cpu",), cuda="", nccl=())


def named(folder: Path, machine: Machine) -> dict[str, HourPart]:
    return {part.name: part for part in parts_of(folder, machine)}


def test_names_are_those_that_can_be_asked_for(tmp_path: Path) -> None:
    assert tuple(named(tmp_path, H200)) == tuple(named(tmp_path, CPU)) == PARTS


def test_the_suite_measures_beside_the_stated_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, object] = {}

    def refuse(out: Path, **options: object) -> None:
        asked.update(options)
        raise InputError("measured enough")

    parts = {part.name: part for part in parts_of(tmp_path, H200, "a100-pcie-80gb")}
    words = [word for word in parts["suite"].words if word.startswith("--base=")]
    assert not any(word.startswith("--base") for word in named(tmp_path, H200)["suite"].words)
    monkeypatch.setattr(sys, "argv", ["executor.suite", str(tmp_path / "s"), "--quick", *words])
    monkeypatch.setattr(measuring, "calibrate", refuse)
    suite()
    assert asked["base"] == "a100-pcie-80gb"


def test_only_tests_of_a_gpu_see_it(tmp_path: Path) -> None:
    parts = named(tmp_path, H200)
    assert parts["faults"].variables["CUDA_VISIBLE_DEVICES"] == ""
    shown = [part for part in parts.values() if part.name != "faults"]
    assert all("CUDA_VISIBLE_DEVICES" not in part.variables for part in shown)


@pytest.mark.parametrize(("cores", "workers"), [(64, "8"), (12, "6"), (4, None)])
def test_several_tests_at_a_time_where_there_are_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int, workers: str | None
) -> None:
    pytest.importorskip("xdist")
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    words = list(named(tmp_path, H200)["tests"].words)
    assert ("-n" in words) == (workers is not None)
    assert workers is None or words[words.index("-n") + 1] == workers
    assert "-n" not in named(tmp_path, CPU)["tests"].words


def test_each_part_leaves_later_ones_some_seconds(tmp_path: Path) -> None:
    code = "import sys; print(sys.argv[1])"
    words = ["-c", code, SECONDS_LEFT]
    parts = tuple(
        HourPart(name=name, answers="?", words=words, seconds=600.0, least=least)
        for name, least in (("a", 20.0), ("b", 40.0), ("c", 60.0))
    )
    for seconds, told in ((200.0, 100.0), (110.0, 20.0)):
        hour = HourParts(out=tmp_path / f"{seconds}", parts=parts, seconds=seconds)
        hour.out.mkdir()
        assert hour.run() == 0
        assert float((hour.out / "a.log").read_text()) == pytest.approx(0.9 * told, abs=1.0)
        last = float((hour.out / "c.log").read_text())
        assert last == pytest.approx(0.9 * seconds, abs=5.0)


def test_whole_runs_are_tested_first_and_warnings_are_none_of_ours(tmp_path: Path) -> None:
    words = list(named(tmp_path, H200)["tests"].words)
    files = [Path(word).name for word in words if word.endswith(".py")]
    assert files == ["test_cuda_whole.py", "test_cuda.py"]
    assert "-v" in words
    for name in ("tests", "faults"):
        words = list(named(tmp_path, H200)[name].words)
        assert words[words.index("-o") + 1] == "filterwarnings=default"


def test_two_ranks_share_a_gpu_over_gloo_where_nccl_refuses(tmp_path: Path) -> None:
    part = named(tmp_path, H200)["sharing"]
    assert part.words[:2] == ["-m", "executor.first_hour.sharing"]
    assert not part.variables
    for able in (replace(H200, nccl=(2, 30, 1)), replace(H200, count=2), CPU):
        assert named(tmp_path, able)["sharing"].words[1] == "parsim"
    newer = named(tmp_path, replace(H200, nccl=(2, 30, 1)))
    assert newer["sharing"].variables == SHARING


@pytest.mark.distributed
def test_two_ranks_over_gloo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts_of(tmp_path, CPU)  # writes the scenario
    out = tmp_path / "sharing"
    words = [str(tmp_path / "sharing.yaml"), str(out), "--device=cpu"]
    monkeypatch.setattr(sys, "argv", ["sharing", *words])
    assert staged() == 0
    document = json.loads((out / "run.json").read_text())
    assert document["verify"]["within"]
    assert document["plan"]["dp_replicate"] == 2


def test_the_suite_is_told_the_seconds_that_are_left(tmp_path: Path) -> None:
    assert "--seconds={seconds}" in named(tmp_path, H200)["suite"].words
    code = "import sys; print(sys.argv[1])"
    part = HourPart(name="a", answers="?", words=["-c", code, "--seconds={seconds}"], seconds=600.0)
    assert HourParts(out=tmp_path, parts=(part,), seconds=100.0).run() == 0
    told = (tmp_path / "a.log").read_text().strip()
    assert told in ("--seconds=89", "--seconds=90")  # nine tenths of what is left of 100


def test_all_that_is_missing_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert missing([*ALWAYS, *FOR_TESTS]) == []
    monkeypatch.setattr("executor.first_hour.__main__.ALWAYS", ("json", "no_such", "nor.this"))
    out = tmp_path / "out"
    monkeypatch.setattr(sys, "argv", ["first_hour", str(out), "--device=cpu"])
    assert main() == 2
    told = capsys.readouterr().err
    assert "no_such (ModuleNotFoundError" in told
    assert "nor.this (ModuleNotFoundError" in told
    assert not out.exists()


def test_an_import_that_ends_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken.py").write_text("import os; os._exit(9)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(Path(__file__).parents[3])
    assert missing(["broken"])[0].startswith("exit code 9")


def test_one_archive_has_all_but_weights(tmp_path: Path) -> None:
    out = tmp_path / "hour"
    (out / "suite").mkdir(parents=True)
    for name in ("parts.json", "suite/report.md", "suite/rank-00000.safetensors", ".lock"):
        (out / name).write_text(name)
    with zipfile.ZipFile(archived(out)) as archive:
        assert archive.namelist() == ["hour/parts.json", "hour/suite/report.md"]
