"""What `parsim calibrate` leaves behind where its ranks fail, or where it is interrupted."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest

from parsim.errors import RunError
from parsim.launch import measuring

LOG = """note: of 60 s: kernels
[rank0]: Traceback (most recent call last):
[rank0]: RuntimeError: no kernel of that size
  exitcode  : 1 (pid: 18000)
"""


@pytest.fixture
def left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary ones, of a calibration that need not know torch."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(measuring, "require_torch", lambda _: None)
    asked = subprocess.CompletedProcess([], 0, "2", "note: of 60 s\n")
    monkeypatch.setattr(measuring, "ask", lambda *_: asked)
    return folder


def test_an_interrupted_calibration_leaves_nothing(
    left: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(measuring, "torchrun", interrupted)
    with pytest.raises(KeyboardInterrupt):
        measuring.calibrate(tmp_path / "device.yaml")
    assert list(left.iterdir()) == []
    assert not (tmp_path / "device.yaml").exists()


def failed(_layout: object, _words: object, log: Path, _wait: object) -> int:
    """Ranks that say why they fail, and do."""
    log.write_text(LOG)
    return 1


def test_ranks_that_failed_are_quoted_and_leave_their_log(
    left: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "torchrun", failed)
    with pytest.raises(RunError, match=r"no kernel of that size; see .*log\.txt"):
        measuring.calibrate(tmp_path / "device.yaml")
    assert [path.name for path in left.glob("*/*")] == ["log.txt"]


def test_what_ranks_say_is_kept_where_it_is_asked_for(
    left: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "torchrun", failed)
    with pytest.raises(RunError, match=r"see .*said\.log"):
        measuring.calibrate(tmp_path / "device.yaml", log=tmp_path / "said.log")
    assert (tmp_path / "said.log").read_text() == LOG
