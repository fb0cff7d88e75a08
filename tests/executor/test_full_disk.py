"""Disks that are full, and folders that cannot be made: what is said, and what is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from executor.checkpoint_folder import whole
from parsim.cli import main
from tests.executor.launch import fork_runs
from tests.executor.running import SCENARIO, Run, Start


@pytest.mark.distributed
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_disk_that_is_full_while_checkpointing(start: Start) -> None:
    run = start("--steps", "1000000", "--checkpoint-every", "50", "--max-restarts", "3")
    folder = run.out / "checkpoints"
    run.checkpoint(after=0)
    part = folder / ".step-00000150.part0"
    part.mkdir()
    (part / "__1_0.distcp").symlink_to("/dev/full")
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
def test_a_disk_that_is_full(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "timeline.json").symlink_to("/dev/full")
    run = Run(tmp_path, "--steps", "1")
    code, told = run.end(timeout=180.0)
    assert code == 2
    assert f"cannot write {run.out / 'timeline.json'}: No space left on device" in told[-1]


@pytest.mark.distributed
def test_a_folder_that_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    fork_runs(monkeypatch, tmp_path)
    out = tmp_path / "out"
    out.write_text("a file")
    (tmp_path / "tiny.yaml").write_text(SCENARIO)
    assert main(["run", str(tmp_path / "tiny.yaml"), "--out", str(out)]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"error: cannot write {out}: ")
