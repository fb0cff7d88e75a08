"""One step of a training as a line of text."""

from __future__ import annotations

from parsim.report.text.run import step_line

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


def test_a_step_on_a_cpu() -> None:
    assert step_line(RECORD) == (
        "step   9/120  loss 5.1234  norm 1.25  250.000 ms  4,096 tokens/s  1.0 GiB"
    )


def test_a_step_on_a_gpu_with_all_that_may_be_known() -> None:
    more = {"peak_reserved_bytes": 2.0**31, "power_w": 690.4, "evaluation_loss": 4.5}
    line = step_line({**RECORD, **more, "timed": False, "loss": None})
    assert "loss undefined" in line
    assert line.endswith("2.0 GiB  690 W  evaluation loss 4.5000  warm-up")
