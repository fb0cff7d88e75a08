"""Errors of published runs by strategy: gathered from rows, shipped, cited by predictions."""

from __future__ import annotations

import json

import pytest

from parsim.plan.strategies import Gossip, ParameterServer
from parsim.report.accuracy.strategies import gather_strategy_runs, strategy_runs_text
from parsim.sim.confidence.strategy_runs import STRATEGY_RUNS, StrategyRuns
from parsim.validation.tables import network_tables
from parsim.validation.validate import Validation, validate
from parsim.validation.validated_row import ValidatedRow
from tests.parsim.sim.data_parallel.cases import predicted


def row(strategy: str, step: float) -> ValidatedRow:
    return ValidatedRow(
        table="t", row_id="r", strategy=strategy, predicted_step=step, measured_step=1.0
    )


def test_figures_are_by_strategy_and_leave_all_reduced_gradients_out() -> None:
    skipped = ValidatedRow(table="t", row_id="s", strategy="gossip", reason="no")
    rows = (row("parameter_server", 0.7), row("", 2.0), row("parameter_server", 1.1), skipped)
    (runs,) = gather_strategy_runs(Validation(rows=rows))
    assert runs == StrategyRuns(strategy="parameter_server", n=2, mean_abs_error=0.2, bias=-0.1)


def test_an_interval_cites_the_published_runs_with_its_strategy() -> None:
    servers, peers = (predicted(kind).interval.basis for kind in (ParameterServer(), Gossip()))
    assert "99 published runs with strategy parameter_server, none of these: mean" in servers
    assert "error 10." in servers
    assert "bias -9." in servers
    assert "no measured run with strategy gossip; its messages and waits add" in peers


@pytest.mark.slow
def test_the_shipped_figures_are_those_of_the_shipped_rows() -> None:
    shipped = json.loads(STRATEGY_RUNS.read_text(encoding="utf-8"))
    networks = validate(network_tables())
    now = json.loads(strategy_runs_text(networks))
    assert len(shipped["strategies"]) == len(now["strategies"])
    for old, new in zip(shipped["strategies"], now["strategies"], strict=True):
        assert old == pytest.approx(new, abs=2e-4), "run `make reports`"
