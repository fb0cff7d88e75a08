"""What several files of tests start and end."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.executor.running import Run, Start


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts runs, and ends what is left of them."""
    pytest.importorskip("torch")
    if sys.platform != "linux":
        pytest.skip("processes are found in /proc")
    runs: list[Run] = []

    def begin(*words: str, **given: str) -> Run:
        runs.append(Run(tmp_path / f"run{len(runs)}", *words, **given))
        return runs[-1]

    yield begin
    for run in runs:
        run.kill()
