"""fp16 with a scaled loss: gradients, and steps that all ranks skip together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from executor.training.scaling import until_finite  # noqa: E402
from tests.executor.launch import launch  # noqa: E402

ROUNDING = 5e-3
"""fp16 has 11 bits, a rounding of 5e-4; of the tiny models the largest error is 2e-3."""

WORKER = Path(__file__).parents[1] / "workers" / "scaling.py"


@pytest.mark.distributed
@pytest.mark.parametrize("ranks", [2, 4])
def test_plans_in_fp16(ranks: int, tmp_path: Path) -> None:
    every = launch(WORKER, ranks=ranks, folder=tmp_path, timeout=240.0)
    assert len(every[0]["cases"]) >= 4
    for name, first in every[0]["cases"].items():
        judged = first["judged"]
        assert judged["within"], (name, judged)
        # of mixtures too: their choices of experts are the same here
        assert judged["max_gradient_error"] < ROUNDING, (name, judged)
        hold_overflow(name, [rank_result["cases"][name]["overflow"] for rank_result in every])
    # far too high a scale falls alike on all ranks, and the first update is an ordinary one
    falls = [rank_result["falling"] for rank_result in every]
    assert all(fall == falls[0] for fall in falls)
    assert falls[0]["scale"] == 2.0 ** (40 - falls[0]["skipped"])
    assert 10 < falls[0]["skipped"] < 40
    assert 0.0 < falls[0]["norm"] < 100.0


def hold_overflow(name: str, ranks: list[dict[str, Any]]) -> None:
    """One value of one rank lets all of them skip once; nothing but the scale moves."""
    for seen in ranks:
        assert seen["same"] == [True, False], (name, seen)
        assert seen["scales"] == [256.0, 128.0, 128.0], name
        assert (seen["skipped"], seen["updates"]) == (1, 2), name
        before, behind, end = seen["rates"]
        assert before == pytest.approx(6e-4 * 6 / 8)
        assert behind == end == pytest.approx(6e-4 * 5 / 8), name


def test_one_process_finds_its_scale() -> None:
    def narrow(scale: float) -> tuple[float, dict[str, Any]]:
        return 1.0, {"weight": torch.tensor([3.0 * scale, 1e-9 * scale]).half().float()}

    gradient = until_finite(narrow)[1]["weight"]
    assert float(gradient[0]) == 3.0
    assert float(gradient[1]) == pytest.approx(1e-9, rel=1e-2)  # zero without a scale
    assert float(until_finite(lambda _: (1.0, {"weight": torch.tensor(torch.inf)}))[1]["weight"])
