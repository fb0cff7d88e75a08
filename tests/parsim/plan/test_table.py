"""Plans as records and as columns say the same."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.errors import PlanError
from parsim.plan import AXES, CpCommType, Plan, PlanTable, Recompute, precision
from parsim.plan.precision import PRECISIONS
from parsim.plan.table import COLUMNS

SCHEDULES = ("naive", "gpipe", "1f1b", "interleaved_1f1b")
degrees = st.integers(1, 512)
orders = st.permutations(AXES).map(tuple)


@st.composite
def plan_lists(draw: st.DrawFn) -> list[Plan]:
    """Plans that differ in what a table has columns for; legal or not is no matter here."""
    common = Plan(
        precision=draw(st.sampled_from(sorted(PRECISIONS))),
        rank_order=draw(orders),
        bucket_bytes=draw(st.floats(1.0, 1e9)),
        overlap_p2p=draw(st.booleans()),
        scatter_p2p=draw(st.booleans()),
        ep=draw(st.integers(1, 4)),
        cp_comm_type=draw(st.sampled_from(CpCommType)),
    )
    whole = {name: degrees for name in COLUMNS[:8]}
    changes = st.fixed_dictionaries(
        {
            **whole,
            "zero_stage": st.integers(0, 3),
            "sequence_parallel": st.booleans(),
            "recompute": st.sampled_from(Recompute),
            "schedule": st.sampled_from(SCHEDULES),
        }
    )
    return [
        replace(common, **drawn_plan)
        for drawn_plan in draw(st.lists(changes, min_size=1, max_size=8))
    ]


@given(plan_lists())
def test_a_table_gives_its_plans_back(plans: list[Plan]) -> None:
    table = PlanTable.of(plans)
    assert len(table) == len(plans)
    assert [table.plan(row) for row in range(len(table))] == plans


@given(plan_lists())
def test_a_plan_that_comes_back_has_plain_values(plans: list[Plan]) -> None:
    back = PlanTable.of(plans).plan(0)
    assert isinstance(back.recompute, Recompute)
    assert [type(getattr(back, f.name)) for f in fields(Plan)] == [
        type(getattr(plans[0], f.name)) for f in fields(Plan)
    ]
    assert json.loads(json.dumps(back.to_json())) == back.to_json()


@given(plan_lists())
def test_columns_are_what_the_plans_say(plans: list[Plan]) -> None:
    table = PlanTable.of(plans)
    assert table.dp.tolist() == [plan.dp for plan in plans]
    assert table.world_size.tolist() == [plan.world_size for plan in plans]
    assert table.precision == precision(plans[0].precision)
    assert table.sequence_split.tolist() == [p.tp if p.sequence_parallel else 1 for p in plans]
    for axis in AXES:
        assert table.stride(axis).tolist() == [plan.stride(axis) for plan in plans]


@given(plan_lists(), st.data())
def test_rows_can_be_taken(plans: list[Plan], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, len(plans) - 1), max_size=5))
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(plans), max_size=len(plans))))
    table = PlanTable.of(plans)
    chosen, kept = table.take(np.array(rows, dtype=np.int64)), table.take(mask)
    assert [chosen.plan(i) for i in range(len(chosen))] == [plans[row] for row in rows]
    expected = [p for p, keep in zip(plans, mask, strict=True) if keep]
    assert [kept.plan(i) for i in range(len(kept))] == expected


@pytest.mark.parametrize(
    ("field", "value"),
    [("stage_layers", (2,)), ("precision", "fp16"), ("rank_order", AXES[::-1])],
)
def test_plans_of_a_table_share_what_has_no_column(field: str, value: object) -> None:
    other = replace(Plan(), **{field: value})  # type: ignore[arg-type]
    with pytest.raises(PlanError, match=f"plans of one table must agree in {field}"):
        PlanTable.of([Plan(), other])


def test_a_table_of_nothing() -> None:
    with pytest.raises(PlanError, match="a plan table needs at least one plan"):
        PlanTable.of([])


# --------------------------------------------------------------------------- one precision


def test_bytes_of_training_in_each_precision() -> None:
    """A parameter with its master copy, gradients and the optimizer's states aside."""
    sizes = {name: p.parameter + p.master for name, p in PRECISIONS.items()}
    quantized = {"fp8": 6, "fp8_rowwise": 6, "mxfp8": 6, "nvfp4": 6, "mxfp4": 6, "fp8_amp": 4}
    quantized |= {"fp16_amp": 4, "bf16_pure": 2}
    assert sizes == {"fp32": 4, "tf32": 4, "bf16": 6, "fp16": 6, "bf16_amp": 4, **quantized}


def test_an_unknown_precision() -> None:
    with pytest.raises(PlanError) as caught:
        precision("bf61")
    assert str(caught.value) == (
        "precision='bf61' is unknown (did you mean 'bf16'?); "
        "allowed: fp32, tf32, bf16, fp16, bf16_amp, bf16_pure, "
        "fp16_amp, fp8, fp8_rowwise, mxfp8, nvfp4, mxfp4, fp8_amp"
    )
