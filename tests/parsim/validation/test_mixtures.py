"""Measured mixtures of experts: names that stand for sizes, and errors of every row."""

from __future__ import annotations

from functools import cache
from statistics import mean

import pytest

from parsim.validation.predict_row import predict_row
from parsim.validation.step.assumptions import software_of_experts
from parsim.validation.step.case import build_case
from parsim.validation.step.known_models import known_mixture
from parsim.validation.step.row_reader import parse_row
from parsim.validation.tables import shipped_tables
from parsim.validation.validate import read_table
from parsim.validation.validated_row import ValidatedRow

BRIDGE, SIMUMAX = "megatron_bridge_performance_public", "simumax_b200_real_vs_sim"
TABLES = {path.stem: path for path in shipped_tables()}


@cache
def mixtures(table: str) -> tuple[ValidatedRow, ...]:
    rows = [row for row in read_table(TABLES[table]) if int(row["ep"] or 1) > 1]
    return tuple(predict_row(table, row) for row in rows)


def test_every_row_is_predicted_or_says_why_not() -> None:
    predicted = [*mixtures(BRIDGE), *mixtures(SIMUMAX)]
    skipped = [row for row in predicted if row.skipped]
    assert len(predicted) >= 99
    assert [row.row_id for row in skipped] == ["megatron_bridge_performance_public-0130"]
    assert "differs from global_batch_size" in skipped[0].reason  # as printed by the source


def test_errors_of_deepseek_on_one_node() -> None:
    """Nothing is fitted to these rows; the stack is that of the dense ones beside them."""
    rows = [row for row in mixtures(SIMUMAX) if not row.skipped]
    errors = [row.error or 0.0 for row in rows]
    assert len(rows) == 12
    assert max(map(abs, errors)) <= 0.12
    assert max(abs(row.memory_error or 0.0) for row in rows) <= 0.006


def test_errors_of_megatron_bridge() -> None:
    """Large, and mostly too fast: GPT-OSS and launch-bound releases; see the report."""
    errors = [row.error or 0.0 for row in mixtures(BRIDGE) if not row.skipped]
    assert mean(map(abs, errors)) <= 0.195


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("Qwen3_30B_a3B", "qwen3-30b-a3b"),
        ("GPT OSS 120B", "gpt-oss-120b"),
        ("DeepSeek-V3 trimmed", "deepseek-v3"),
        ("Mixtral 8x22B", "mixtral-8x22b"),
        ("Nemotron_3_Nano", "nemotron-3-nano"),
    ],
)
def test_a_name_stands_for_a_model_of_the_catalog(name: str, model: str) -> None:
    predicted = known_mixture(name)
    assert predicted is not None
    assert predicted.name == model


def test_a_trimmed_model_keeps_one_plain_layer() -> None:
    row = next(row for row in read_table(TABLES[SIMUMAX]) if row["model"] == "DeepSeek-V3 trimmed")
    case = build_case(parse_row(row))
    plain = [layer.experts is None for layer in case.job.model.blocks]
    assert plain == [True, False, False, False]
    assert case.plan.ep == 8


def test_releases_that_run_experts_otherwise() -> None:
    assert software_of_experts("megatron-bridge", "26.04.01") is None
    assert software_of_experts("megatron-bridge", "26.06") == "megatron-bridge-26.06"
    assert software_of_experts("megatron-bridge", "26.08") == "megatron-bridge-26.06"
    assert software_of_experts("nemo", "26.08") is None
    assert software_of_experts("megatron-bridge", "") is None
