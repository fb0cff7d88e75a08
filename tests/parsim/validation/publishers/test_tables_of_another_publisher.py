"""Runs of mixtures that another publisher measured, and of TPUs whose kernels nobody fitted."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean

import pytest

from parsim.sim import simulate
from parsim.validation.step.case import Case
from parsim.validation.tables import shipped_tables
from parsim.validation.validate import validate
from parsim.validation.validated_row import ValidatedRow

PEDIA, RECIPES = "gpu_tpu_pedia_public", "tpu_recipes_public"


@pytest.fixture(scope="module")
def rows() -> dict[str, ValidatedRow]:
    paths = [path for path in shipped_tables() if path.stem in (PEDIA, RECIPES)]
    return {row.row_id: row for row in validate(paths).rows}


def case_of(rows: dict[str, ValidatedRow], table: str, number: int) -> Case:
    case = rows[f"{table}-{number:04d}"].case
    assert isinstance(case, Case)
    return case


def errors(rows: dict[str, ValidatedRow], table: str, device: str) -> list[float]:
    chosen = [row for row in rows.values() if row.table == table and row.device.startswith(device)]
    return [row.error for row in chosen if row.error is not None]


def test_an_unseen_mixture_is_within_a_few_percent(rows: dict[str, ValidatedRow]) -> None:
    off = errors(rows, PEDIA, "gb")
    assert len(off) == 25
    assert mean(abs(error) for error in off) < 0.06
    assert abs(mean(off)) < 0.035


def test_dense_models_on_tpus_that_nobody_fitted(rows: dict[str, ValidatedRow]) -> None:
    off = errors(rows, RECIPES, "tpu-v6e")
    assert len(off) == 17
    assert mean(abs(error) for error in off) < 0.15
    mixtures = errors(rows, PEDIA, "tpu7x")
    assert all(-0.5 < error < 0.5 for error in mixtures), "copies at so much a matrix unit: 8 times"


def test_rows_say_what_graphs_launch_and_what_overlaps(rows: dict[str, ValidatedRow]) -> None:
    whole, waits, eager, partly = (case_of(rows, PEDIA, n).job.software for n in (25, 26, 29, 30))
    assert (whole.graphs, eager.graphs) == (("all",), ())
    assert partly.graphs == ("attn", "moe_router", "moe_preprocess")
    assert [used.expert_hidden("gb300") for used in (whole, waits, eager)] == [1.0, 0.0, 1.0]


def test_launches_for_overlap_bind_a_run_without_any_graph(rows: dict[str, ValidatedRow]) -> None:
    whole, eager = (case_of(rows, PEDIA, number) for number in (25, 29))  # measured: 21.0, 31.3 s
    turns = replace(eager.job, software=replace(eager.job.software, overlap_launches=35.0))
    alike = replace(whole.job, software=replace(whole.job.software, overlap_launches=35.0))
    graph = simulate(whole.job, whole.plan).step_time
    assert simulate(alike, whole.plan).step_time == graph
    assert simulate(turns, eager.plan).step_time > 1.3 * graph
    assert simulate(eager.job, eager.plan).step_time < 1.2 * graph


def test_what_configurations_keep_on_the_host(rows: dict[str, ValidatedRow]) -> None:
    plan = case_of(rows, RECIPES, 1).plan
    assert plan.offload_layers == 32
    assert plan.recompute_modules == ("layernorm", "core_attn", "mlp")
    assert case_of(rows, RECIPES, 17).plan.dp_replicate == 2  # slices
