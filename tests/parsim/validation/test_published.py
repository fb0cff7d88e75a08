"""How near predictions are to published measurements: whole tables, one set of constants.

The README and reports/accuracy.md show the errors of every row; here are the limits that no change
may break.
"""

from __future__ import annotations

import pytest

from parsim.validation.validate import Validation, validate
from tests.parsim.validation.conftest import shipped


@pytest.fixture(scope="module")
def validation() -> Validation:
    names = (
        "megatron_sc21_table1",
        "korthikanti2022_step_time",
        "simumax_b200",
        "nvidia_dgxc_benchmarking",
        "megatron_bridge_performance",
        "megatron_lm",
        "nemo_performance",
        "torchtitan_public",
    )
    return validate([shipped(name) for name in names])


@pytest.mark.parametrize(
    ("software", "device", "rows", "limit"),
    [
        ("nemo", "h100-sxm-80gb", 88, 0.025),
        ("maxtext", "h100-sxm-80gb", 22, 0.08),
        ("megatron-bridge", "h100-sxm-80gb", 10, 0.09),
        ("megatron-bridge", "b200-sxm", 4, 0.06),
        ("megatron-bridge", "gb200", 22, 0.06),
        ("megatron-bridge", "gb300", 19, 0.09),
        ("torchtitan", "h100-sxm-96gb-500w", 16, 0.08),
        ("megatron-te-2025", "b200-sxm", 31, 0.04),
    ],
)
def test_stacks_with_8_bit_products_or_context_parallelism(
    validation: Validation, software: str, device: str, rows: int, limit: float
) -> None:
    """Mean |error| over all rows of a stack on a device that state what is needed."""
    errors = [
        row.error
        for row in validation.rows
        if row.error is not None and (row.practice, row.device) == (software, device)
    ]
    assert len(errors) == rows
    assert sum(map(abs, errors)) / rows <= limit


def test_what_is_left_out_of_these_tables(validation: Validation) -> None:
    """Fine-tuning, missing figures and one row whose batch does not add up."""
    words = ("task ", "is not stated", "micro_batch_size x", "neither")
    reasons = {row.reason for row in validation.rows if row.skipped}
    assert [
        reason
        for reason in reasons
        if not reason.startswith(words) and not any(word in reason for word in words)
    ] == []


def test_models_above_100_billion_parameters() -> None:
    """Rows that came later; of these a third of the dense GB200 rows is in a fit."""
    rows = validate([shipped("nvidia_dgxc_large")]).rows
    errors: dict[tuple[str, bool], list[float]] = {}
    for row in rows:
        assert row.error is not None, row.reason
        errors.setdefault((row.device, row.practice.endswith("experts")), []).append(row.error)
    means = {kind: sum(map(abs, some)) / len(some) for kind, some in errors.items()}
    assert {kind: len(some) for kind, some in errors.items()} == {
        ("h100-sxm-80gb", False): 55,
        ("h100-sxm-80gb", True): 18,
        ("gb200", False): 18,
        ("gb200", True): 2,
    }
    assert means["gb200", False] <= 0.021
    assert means["h100-sxm-80gb", False] <= 0.06


def test_megatron_weak_scaling_from_1_7_billion_to_1_trillion(validation: Validation) -> None:
    """All ten rows of table 1 of arXiv:2104.04473."""
    first = validation.summary("megatron_sc21_table1_weak_scaling")
    assert (first.n, first.n_skipped) == (10, 0)
    assert first.mean_abs_error is not None
    assert first.mean_abs_error <= 0.06


def test_sequence_parallelism_of_22b_and_530b(validation: Validation) -> None:
    """Five of the seven rows of arXiv:2205.05198; the other two state no step time."""
    first = validation.summary("korthikanti2022_step_time_22b_530b")
    assert (first.n, first.n_skipped) == (5, 2)
    assert first.mean_abs_error is not None
    assert first.mean_abs_error <= 0.04


def test_memory_of_dense_models_and_mixtures_on_b200(validation: Validation) -> None:
    first = validation.memory_summary("simumax_b200_real_vs_sim")
    assert first.n == 43
    assert first.mean_abs_error is not None
    assert first.mean_abs_error <= 0.03


def test_zero_3_of_2021_which_no_fit_saw() -> None:
    """Table 2 of arXiv:2104.04473 without model parallelism, on 384 to 2,240 GPUs."""
    rows = validate([shipped("megatron_sc21_table2")]).rows
    errors = [row.error for row in rows if row.practice == "deepspeed-zero3-2021" and row.error]
    assert len(errors) == 6
    assert sum(map(abs, errors)) / 6 <= 0.16


def test_zero_3_on_v100s_over_a_measured_network() -> None:
    """20 runs whose activations were on the host, or fit; 43.6 % off over the nominal network."""
    rows = validate([shipped("deepspeed_public")]).rows
    there = [row for row in rows if row.practice == "deepspeed-zero3-2021" and row.error]
    assert len(there) == 20
    assert sum(abs(row.error or 0.0) for row in there) / 20 <= 0.16
    hosted = [row for row in there if row.case and row.case.plan.offload_layers]
    assert len(hosted) == 16
