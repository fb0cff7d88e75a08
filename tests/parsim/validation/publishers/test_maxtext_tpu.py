"""MaxText's published rates on TPU v5e and v5p, predicted without any kernel of a TPU."""

from __future__ import annotations

from statistics import mean

import pytest

from parsim.plan import Recompute
from parsim.validation.step.case import Case
from parsim.validation.tables import shipped_tables
from parsim.validation.validate import validate
from parsim.validation.validated_row import ValidatedRow


@pytest.fixture(scope="module")
def rows() -> list[ValidatedRow]:
    paths = [path for path in shipped_tables() if path.stem == "maxtext_tpu_public"]
    return list(validate(paths).rows)


def case_of(rows: list[ValidatedRow], number: int) -> Case:
    case = next(row for row in rows if row.row_id == f"maxtext_tpu_public-{number:04d}").case
    assert isinstance(case, Case)
    return case


def test_errors_and_intervals_of_what_was_never_fitted(rows: list[ValidatedRow]) -> None:
    predicted = [row for row in rows if not row.skipped]
    assert (len(rows), len(predicted)) == (40, 34)
    errors = [(row.predicted_step or 0.0) / (row.measured_step or 1.0) - 1.0 for row in predicted]
    assert mean(abs(error) for error in errors) < 0.09
    assert abs(mean(errors)) < 0.05
    inside = [
        row.step_interval[0] <= (row.measured_step or 0.0) <= row.step_interval[1]
        for row in predicted
        if row.step_interval
    ]
    assert sum(inside) >= 0.8 * len(predicted)


@pytest.mark.parametrize(
    ("number", "billions"),
    [(1, 16), (7, 32), (13, 64), (29, 128), (33, 256), (35, 512), (37, 1024)],
)
def test_a_row_says_the_width_of_a_head(
    rows: list[ValidatedRow], number: int, billions: int
) -> None:
    # 64 heads of 128 beside a width of 4,096: the name's parameters need the stated head_dim
    case = case_of(rows, number)
    assert case.job.model.parameters == pytest.approx(billions * 1e9, rel=0.04)


def test_a_row_says_which_modules_backward_repeats(rows: list[ValidatedRow]) -> None:
    assert case_of(rows, 25).plan.recompute_modules == ("layernorm", "core_attn")
    assert case_of(rows, 1).plan.recompute is Recompute.FULL
    assert not case_of(rows, 1).plan.recompute_modules
    offloaded = [row.reason for row in rows if row.skipped]
    assert len(offloaded) == 6
    assert all("recompute='qkv_proj_offloaded' is unknown" in reason for reason in offloaded)


def test_slices_are_joined_by_replicas(rows: list[ValidatedRow]) -> None:
    plan = case_of(rows, 6).plan
    assert (plan.dp_shard, plan.dp_replicate) == (256, 32)
    cluster = case_of(rows, 31).job.cluster
    assert (cluster.system.devices_per_node, cluster.num_nodes) == (256, 1)
