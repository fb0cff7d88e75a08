"""Models laid out on ranks: losses, gradients and weights are those of one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from tests.executor.launch import launch
from tests.executor.workers.layouts import FOUR, TWO

WORKER = Path(__file__).parent.parent / "workers" / "layouts.py"


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """What each rank answers of each case, of two launches for all."""
    return {
        case: [rank[case] for rank in ranks]
        for count, cases in ((2, TWO), (4, FOUR))
        for ranks in [
            launch(
                WORKER,
                *cases,
                ranks=count,
                folder=tmp_path_factory.mktemp(f"ranks{count}"),
                timeout=300.0,
            )
        ]
        for case in cases
    }


@pytest.mark.distributed
@pytest.mark.parametrize("case", [*TWO, *FOUR])
def test_a_mesh_trains_as_one_process_does(
    case: str, answers: dict[str, list[dict[str, Any]]]
) -> None:
    first, *others = answers[case]
    assert first["gradient"] <= 1e-12
    assert first["loss"] <= 1e-12
    assert first["verdict"]["within"], first["verdict"]
    assert first["names"]
    assert first["weights"] <= 1e-5
    assert first["apart"] == 0.0  # what is whole stays one, with dropout too
    for other in others:
        assert other["losses"] == first["losses"]
        assert other["norms"] == first["norms"]
