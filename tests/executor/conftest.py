"""What several files of tests start and end."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from executor.faults.parent import end_with_parent
from tests.executor.running import Run, Start

end_with_parent()
"""Takes the name of a parent out of the environment, which ranks of tests would take for theirs."""


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


@pytest.fixture
def one_rank() -> Iterator[None]:
    """A world of one rank, over gloo."""
    dist = pytest.importorskip("torch.distributed")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()
