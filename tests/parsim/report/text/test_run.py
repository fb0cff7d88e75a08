"""One step of a training as a line of text."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from parsim.report.text.measured.step_line import step_line
from parsim.report.text.run import run_view

RECORD = {
    "step": 8,
    "steps": 120,
    "loss": 5.12341,
    "gradient_norm": 1.25,
    "seconds": 0.25,
    "tokens_per_s": 4096.4,
    "peak_reserved_bytes": None,
    "resident_bytes": 2.0**30,
    "power_w": None,
    "timed": True,
}


DOCUMENT: dict[str, Any] = {
    "predicted": {"step_time_s": 1.0, "samples_per_s": 8.0},
    "measured": {"step_time_s": {"mean": 1.0, "n": 2}, "samples_per_s": 8.0, "loss": [1.0]},
    "error": {"step_time": None},
    "strategy": {"name": "gossip", "mean_staleness_updates": None},
    "verify": None,
    "device": "cpu",
}


def test_a_step_on_a_cpu() -> None:
    assert step_line(RECORD) == (
        "step   9/120  loss 5.1234  norm 1.25  250.000 ms  4,096 tokens/s  1.0 GiB"
    )


def test_a_step_on_a_gpu_with_all_that_may_be_known() -> None:
    more = {"peak_reserved_bytes": 2.0**31, "power_w": 690.4, "evaluation_loss": 4.5}
    line = step_line({**RECORD, **more, "timed": False, "loss": None})
    assert "loss undefined" in line
    assert line.endswith("2.0 GiB  690 W  evaluation loss 4.5000  warm-up")


@pytest.mark.parametrize(
    ("n", "mean", "why"),
    [
        (2, None, "they never trained together; take more --steps"),
        (0, None, "none was left behind the warm-up"),
        (2, 0.5, ""),
    ],
)
def test_a_strategy_without_step_time_says_why(n: int, mean: float | None, why: str) -> None:
    step = {"mean": mean, "n": n}
    rate = None if mean is None else 8 / mean
    measured = {"step_time_s": step, "samples_per_s": rate, "loss": [1.0]}
    told = printed({**DOCUMENT, "measured": measured})
    assert ("no step" in told) == bool(why)
    assert why in told


def test_a_pipeline_tells_of_its_stages_memory_and_versions() -> None:
    peaks = {"peak_allocated_bytes": [2.0**31, 2.0**30]}
    document = {**DOCUMENT, "predicted": DOCUMENT["predicted"] | peaks}
    document["measured"] = DOCUMENT["measured"] | peaks
    document["error"] = {"step_time": None, "peak_memory_by_stage": [0.0, 0.025]}
    versions = {"versions_by_rank": [2, 2, 1], "replay_error": 0.0}
    told = printed({**document, "strategy": DOCUMENT["strategy"] | versions})
    assert ["peak", "allocated,", "stage", "1", "1.0", "GiB", "1.0", "GiB", "+2.5", "%"] in [
        line.split() for line in told.splitlines()
    ]
    assert "versions of weights at once, by rank: 2, 2, 1" in told
    assert "replayed in one process by the table of versions: error 0.0e+00" in told


def printed(document: dict[str, Any]) -> str:
    page = Console(width=300)
    with page.capture() as text:
        page.print(run_view(document, "out"))
    return text.get()


@pytest.mark.parametrize("decides", [True, False])
def test_a_bound_that_decides_nothing_is_said_to(decides: bool) -> None:
    verified = {"max_gradient_error": 1e-3, "max_loss_error": 0.0, "parameter": "conv1.weight"}
    verified |= {"bound": 0.31, "loss_bound": 1e-6, "reference": "one", "decides": decides}
    told = printed({**DOCUMENT, "verify": verified})
    assert ("this bound decides nothing: a gradient may be 31.0 % off" in told) != decides
