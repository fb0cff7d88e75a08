"""The suite for real: three tiny cases on CPU ranks, and what a failing rank leaves."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from executor.suite.__main__ import main
from executor.suite.cases import QUICK, SuiteCase, before_calibration, scenario_text
from executor.suite.machine import look
from executor.suite.session import CaseError, CaseStopped, Session
from parsim.cli.app import main as parsim
from parsim.errors import InputError
from parsim.scenario import load_scenario


def suite(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["executor.suite", *words])
    return main()


def alive(session: Session) -> list[int]:
    return [process.pid for process in session._ranks if process.poll() is None]


def words(case: SuiteCase, folder: Path) -> list[str]:
    folder.mkdir(parents=True)
    (folder / "scenario.yaml").write_text(scenario_text(case, before_calibration("cpu")))
    return [
        str(folder / "scenario.yaml"),
        f"--out={folder}",
        "--steps=2",
        "--warmup=1",
        "--device=cpu",
        "--oversubscribe",
    ]


@pytest.mark.distributed
def test_the_quick_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    assert suite(monkeypatch, str(out), "--quick", "--seconds", "500") == 0
    document = json.loads((out / "report.json").read_text())
    assert [entry["name"] for entry in document["cases"]] == [case.name for case in QUICK]
    assert document["predicted_before_running"]
    assert document["skipped"] == document["failed"] == {}
    assert document["summary"]["step_time"]["n"] == len(QUICK)
    assert -1.0 <= document["summary"]["spearman"] <= 1.0
    for entry in document["cases"]:
        assert entry["step_time_s"]["n"] == 3
        assert entry["step_time_s"]["min"] <= entry["step_time_s"]["measured"]
        assert entry["kinds_s"]["forward"]["measured"] > 0.0
        check_case(out / entry["name"], entry["step_time_s"]["predicted"])
    text = (out / "report.md").read_text()
    assert "overlay-gpt-tiny-1f1b.png" in text
    assert str(tmp_path) not in text + json.dumps(document)
    drawn = (out / "report.md").read_bytes()
    assert suite(monkeypatch, str(out), "--report") == 0
    assert (out / "report.md").read_bytes() == drawn


def check_case(folder: Path, predicted: float) -> None:
    """A case is a scenario with the calibrated device; its run had the same prediction."""
    assert load_scenario(folder / "scenario.yaml").job.device.calibrated
    run = json.loads((folder / "run.json").read_text())
    assert run["predicted"]["step_time_s"] == pytest.approx(predicted)
    assert not (folder / "errors").exists()
    files = [str(folder / name) for name in ("predicted.json", "timeline.json")]
    assert parsim(["compare", *files]) in (0, 4)


@pytest.mark.distributed
def test_ranks_that_fail_are_named_and_started_again(tmp_path: Path) -> None:
    bad = SuiteCase(
        name="bad",
        family="f",
        batch=2,
        plan={"microbatch_size": 2},
        model={**QUICK[0].model, "vocab_size": 200},
    )
    with Session(1) as session:
        with pytest.raises(CaseError, match=r"rank 0 failed.*vocab_size=200.*see bad/log\.txt"):
            session.run(words(bad, tmp_path / "bad"), tmp_path / "bad", limit=300.0)
        assert alive(session) == []
        for name in ("good", "again"):
            folder = tmp_path / name
            session.run(words(QUICK[0], folder), folder, limit=300.0)
            assert (
                json.loads((folder / "run.json").read_text())["measured"]["step_time_s"]["n"] == 2
            )
        (rank,) = alive(session)
    with pytest.raises(ProcessLookupError):
        os.kill(rank, 0)


@pytest.mark.distributed
def test_ranks_that_take_too_long_are_ended(tmp_path: Path) -> None:
    with Session(2) as session:
        with pytest.raises(CaseStopped, match=r"stopped after 0 s; see late/log\.txt"):
            session.run(words(QUICK[1], tmp_path / "late"), tmp_path / "late", limit=0.1)
        assert alive(session) == []


def test_bad_input_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert suite(monkeypatch, str(tmp_path / "none"), "--report") == 2
    assert "progress.json: no such file; run the suite again" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert suite(monkeypatch, str(tmp_path / "file" / "out"), "--quick") == 2
    assert "cannot write" in capsys.readouterr().err
    assert suite(monkeypatch, str(tmp_path / "out"), "--quick", "--cases", "gpt-tiny-tp") == 2
    assert "case 'gpt-tiny-tp' is unknown" in capsys.readouterr().err


@pytest.mark.slow
def test_a_device_that_is_not_there() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(InputError, match=r"device='cuda', but torch .* sees no GPU"):
        look("cuda")
