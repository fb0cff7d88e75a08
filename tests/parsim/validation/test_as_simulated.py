"""A row of one's own is predicted as `parsim simulate` predicts the same job."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsim import load_scenario, simulate
from parsim.validation.predict_row import predict_row

ROOT = Path(__file__).parents[3]
SCENARIO = """
model: {name: llama3-8b, seq_len: 8192}
cluster: {system: dgx-h100, nodes: 1}
training: {global_batch_size: 16, precision: bf16}
plan: {microbatch_size: 1}
"""
PLANS = {
    "1": {"plan.zero_stage": "1", "plan.recompute": "full"},
    "3": {"plan.zero_stage": "3", "plan.recompute": "selective"},
}


def documented_row() -> dict[str, str]:
    """The first row of the example that docs/accuracy.md shows."""
    page = (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")
    header, first = page.split("```csv\n")[1].splitlines()[:2]
    return dict(zip(header.split(","), first.split(","), strict=True))


@pytest.mark.parametrize(
    ("stack", "stage"),
    [
        ("torchtitan", "3"),
        ("fms-fsdp", "3"),
        ("deepspeed-zero3", "3"),
        ("megatron-bridge", "1"),
        ("megatron-lm", "3"),
        ("generic", "3"),
        ("deepspeed-huggingface", "1"),
    ],
)
def test_a_row_is_the_scenario_that_it_describes(stack: str, stage: str, tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(SCENARIO)
    sets = PLANS[stage]
    expected = simulate(load_scenario(file, {"software": stack, **sets}))
    again = sets["plan.recompute"]
    row = documented_row() | {"stack": stack, "zero_stage": stage, "recompute": again}
    predicted = predict_row("mine", row)
    assert predicted.predicted_step == pytest.approx(expected.step_time, rel=1e-12)
    assert predicted.predicted_peak == expected.fullest.peak_allocated
    assert predicted.step_interval is not None
    if stack != "generic":  # whose scenarios reach over all stacks that it may stand for
        assert predicted.step_interval[0] == pytest.approx(expected.interval.low, rel=1e-12)
