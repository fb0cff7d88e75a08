"""Networks of images on two ranks: gradients of one process, batch normalisation included."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.executor.launch import launch

WORKER = Path(__file__).parents[1] / "workers" / "networks.py"

pytestmark = pytest.mark.distributed


def test_gradients_are_those_of_one_process(tmp_path: Path) -> None:
    errors = launch(WORKER, ranks=2, folder=tmp_path, timeout=240.0)[0]
    assert errors.pop("fp64") < 1e-9
    # a maximum of a pool, or a threshold, that two roundings choose differently is not there
    assert max(errors.values()) < 2e-5, errors
