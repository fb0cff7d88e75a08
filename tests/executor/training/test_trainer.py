"""Whole plans through the trainer: gradients equal to one process's, on 2, 4 and 8 ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.executor.launch import launch

WORKER = Path(__file__).parents[1] / "workers" / "training.py"


@pytest.mark.distributed
@pytest.mark.parametrize("ranks", [2, 4, pytest.param(8, marks=pytest.mark.slow)])
def test_gradients_of_every_kind_of_plan(ranks: int, tmp_path: Path) -> None:
    errors = launch(WORKER, ranks=ranks, folder=tmp_path, timeout=240.0)[0]
    assert len(errors) >= 4
    assert {name: error for name, error in errors.items() if error > 1e-6} == {}
