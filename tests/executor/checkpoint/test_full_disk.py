"""Disks that are full, and folders that cannot be made: what is said, and what is left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from executor.checkpoint.folder import whole
from parsim.cli.app import main
from parsim.errors import InputError
from parsim.report.writing import write_text
from parsim.timelines.reader import load_timeline
from tests.executor.launch import fork_runs
from tests.executor.running import SCENARIO, Start


@pytest.mark.distributed
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_disk_that_is_full_while_checkpointing(start: Start) -> None:
    run = start("--steps", "1000000", "--checkpoint-every", "50", "--max-restarts", "3")
    folder = run.out / "checkpoints"
    run.checkpoint(after=0)
    part = folder / ".step-00000150.part0"
    part.mkdir()
    (part / "rank-00001.safetensors").symlink_to("/dev/full")
    code, told = run.end(timeout=300.0)
    assert told[-1] == (
        f"error: rank 1 failed at step 150, action checkpoint: cannot write {part}: No space left "
        f"on device; choose another folder with --checkpoints, or free space there; the full log "
        f"is {run.out / 'log.txt'}"
    )
    assert code == 2
    assert not any("restart" in line for line in told)
    left = sorted(path.name for path in folder.iterdir())
    assert left == ["step-00000050", "step-00000100"]
    assert [path.name for path in whole(folder)] == left


@pytest.mark.distributed
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_disk_that_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    out, kept = tmp_path / "out", tmp_path / "kept"
    out.mkdir()
    kept.mkdir()
    monkeypatch.setenv("TMPDIR", str(kept))
    for name in ("run.json", "timeline.json", "steps.jsonl"):
        (out / name).symlink_to("/dev/full")
    monkeypatch.setattr("parsim.launch.launch._fresh", lambda *_, **__: None)  # it would unlink
    assert run_forked(tmp_path, monkeypatch, "--steps", "1", "--warmup", "0") == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert f"cannot write {out / 'run.json'}: No space left on device; what was meas" in told
    [folder] = kept.glob("parsim-run-*")
    assert f"{folder / 'run.json'}, {folder / 'timeline.json'}; choose another" in told
    document = json.loads((folder / "run.json").read_text())
    assert len(document["measured"]["step_seconds"]) == 1
    assert load_timeline(folder / "timeline.json").ranks == (0, 1)
    assert (out / "loss.png").exists()
    log = (out / "log.txt").read_text()
    assert f"note: cannot write {out / 'steps.jsonl'}: No space left on device; the train" in log


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_picture_that_is_refused_hides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is written as all pictures are, which tell of a full disk in words of their own."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name in ("run.json", "loss.png"):
        (tmp_path / name).symlink_to("/dev/full")
    results = pytest.importorskip("executor.run.results").Results(tmp_path)
    results.save("run.json", lambda path: path.write_text("{}"))
    results.save("loss.png", lambda path: write_text(path, "a curve"))
    with pytest.raises(InputError) as caught:
        results.check()
    [folder] = tmp_path.glob("parsim-run-*")
    kept = f"{folder / 'loss.png'}, {folder / 'run.json'}"
    assert f"what was measured is kept in {kept}" in str(caught.value)
    assert (folder / "loss.png").read_text() == "a curve"
    assert not (tmp_path / "loss.png").exists()


@pytest.mark.distributed
def test_a_folder_that_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    out = tmp_path / "out"
    out.write_text("a file")
    assert run_forked(tmp_path, monkeypatch) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"error: cannot write {out}: ")


def run_forked(folder: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """The exit code of a run into the folder `out`."""
    fork_runs(monkeypatch, folder)
    path = folder / "tiny.yaml"
    path.write_text(SCENARIO)
    return main(["run", str(path), "--out", str(folder / "out"), *words])
