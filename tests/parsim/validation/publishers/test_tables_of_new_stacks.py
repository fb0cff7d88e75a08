"""Runs of stacks that no other table has, predicted from what their sources say of them."""

from __future__ import annotations

from statistics import mean

import pytest

from parsim.validation.step.case import Case
from parsim.validation.tables import shipped_tables
from parsim.validation.validate import validate
from parsim.validation.validated_row import ValidatedRow

NAMES = ("internevo_public", "fms_fsdp_public", "nemo_automodel_public", "nemo_summaries_public")


@pytest.fixture(scope="module")
def rows() -> dict[str, ValidatedRow]:
    paths = [path for path in shipped_tables() if path.stem in NAMES]
    return {row.row_id: row for row in validate(paths).rows}


def errors(rows: dict[str, ValidatedRow], table: str) -> list[float]:
    return [row.error for row in rows.values() if row.table == table and row.error is not None]


@pytest.mark.parametrize(
    ("table", "predicted", "most_off"),
    [
        ("internevo_public", 48, 0.10),
        ("fms_fsdp_public", 13, 0.07),
        ("nemo_automodel_public", 13, 0.07),
        ("nemo_summaries_public", 28, 0.09),
    ],
)
def test_unseen_stacks_are_within_a_tenth(
    rows: dict[str, ValidatedRow], table: str, predicted: int, most_off: float
) -> None:
    off = errors(rows, table)
    assert len(off) == predicted
    assert mean(abs(error) for error in off) < most_off


def test_most_are_inside_their_intervals(rows: dict[str, ValidatedRow]) -> None:
    inside = [
        low <= row.measured_step <= high
        for row in rows.values()
        if row.step_interval is not None and row.measured_step is not None
        for low, high in [row.step_interval]
    ]
    assert len(inside) == 102
    assert mean(inside) > 0.8


def test_optimizer_states_are_shared_within_a_group(rows: dict[str, ValidatedRow]) -> None:
    group, whole = (rows[f"internevo_public-{number:04d}"].case for number in (16, 8))
    assert isinstance(group, Case)
    assert isinstance(whole, Case)
    assert (group.plan.zero_stage, group.plan.dp_shard, group.plan.dp_replicate) == (1, 8, 128)
    assert (whole.plan.zero_stage, whole.plan.dp_shard, whole.plan.dp_replicate) == (1, 1024, 1)
    assert group.plan.recompute_modules == ("layernorm",)
