"""Strategies side by side: ages under given delays, ratios within turns, the page."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from executor.strategy_suite import ranks
from executor.strategy_suite.cases import AGED, LAYOUTS, STRATEGIES, cases, delays
from executor.strategy_suite.compare import Row, distance, simulated_ages, summary, with_ties
from executor.strategy_suite.report import schedule_lines, write_report
from executor.strategy_suite.schedules import schedule_cases
from executor.suite.cases import before_calibration, scenario_text
from parsim.errors import ParsimError
from parsim.plan.names import SCHEDULE_NAMES
from parsim.scenario import load_scenario


def test_ages_of_two_workers_by_hand() -> None:
    """One and two seconds, ties by number (reference: 0, 0, 2, 1, 0, 2, 1, 0, 2)."""
    ages = simulated_ages(np.tile([1.0, 2.0], (6, 1)), {})
    assert ages[:9] == [0, 0, 2, 1, 0, 2, 1, 0, 2]


def test_a_bound_of_nothing_lets_nobody_run_ahead() -> None:
    """Each round has one gradient of every age from 0 to n - 1."""
    ages = simulated_ages(delays(0.1), AGED["bound 0"])
    assert sorted(ages) == sorted(list(range(4)) * 60)


def test_the_distance_of_distributions() -> None:
    assert distance([0, 1, 1, 2], [1, 2, 0, 1]) == 0.0
    assert distance([0, 0, 0, 0], [3, 3]) == 1.0
    assert distance([0, 0, 1, 1], [0, 1, 1, 1]) == 0.25


def test_a_turn_in_which_workers_were_never_together_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    steps = iter([math.nan, 0.5, *[math.nan] * ranks.TRIES])
    monkeypatch.setattr(ranks, "_step", lambda *_: next(steps))
    part: Any = SimpleNamespace(options=SimpleNamespace(out=tmp_path))
    assert ranks._turn(part, math.inf) == 0.5
    with pytest.raises(ParsimError, match="never at work together"):
        ranks._turn(part, math.inf)


def test_ratios_are_those_of_a_turn() -> None:
    """A turn in which everything takes ten times as long changes no ratio."""
    base = Row(model="m", strategy="ddp", predicted=1.0, turns=(1.0, 10.0, 1.2))
    slow = Row(model="m", strategy="server", predicted=2.2, turns=(2.0, 20.0, 2.4))
    fast = Row(model="m", strategy="local", predicted=0.5, turns=(0.5, 5.0, 0.6))
    figures = summary([base, slow, fast])
    assert figures["order_spearman"] == pytest.approx(1.0)
    assert figures["mean_absolute_error_of_ratio"] == pytest.approx(0.05)
    assert [row["measured_over_ddp"] for row in figures["rows"]] == [1.0, 2.0, 0.5]
    assert figures["rows"][1]["error_of_least"] == pytest.approx(0.1)


def test_predictions_within_a_thousandth_share_their_place() -> None:
    """However a tie came out, the order is neither 1 nor what chance makes of it."""
    assert with_ties([2.0, 1.0, 1.0009, 1.0011]) == [2.0, 1.0, 1.0, 1.0011]
    for measured in ((1.0, 1.5), (1.5, 1.0)):
        rows = [
            Row(model="m", strategy="1f1b", predicted=1.0, turns=(measured[0],)),
            Row(model="m", strategy="zb_h1", predicted=1.0003, turns=(measured[1],)),
            Row(model="m", strategy="gpipe", predicted=2.0, turns=(3.0,)),
        ]
        assert summary(rows, "1f1b")["order_spearman"] == pytest.approx(3**0.5 / 2)


def test_every_case_is_a_scenario(tmp_path: Path) -> None:
    made = cases()
    assert len(made) == 2 * len(STRATEGIES) + len(LAYOUTS)
    names = set()
    for case in (*made[: len(STRATEGIES)], *made[-len(LAYOUTS) :]):
        path = tmp_path / "scenario.yaml"
        path.write_text(scenario_text(case, before_calibration("cpu")), encoding="utf-8")
        names.add(load_scenario(path).fixed_plan().strategy.name)
    assert {"ddp", "data_parallel", "asynchronous_gossip", "diloco", "layout"} <= names


def test_the_page(tmp_path: Path) -> None:
    base = Row(model="m", strategy="ddp", predicted=1.0, turns=(1.0, 1.1))
    slow = Row(model="m", strategy="server", predicted=2.0, turns=(2.0, 2.2))
    ages = {
        "simulated": [0, 1],
        "measured": [0, 1],
        "distance": 0.2,
        "simulated_mean": 0.5,
        "measured_mean": 0.5,
    }
    machine = {"count": 2, "names": ["core", "core"], "torch": "2.13", "load": 3.4}
    document = {
        "meta": {"machine": machine, "workers": 2},
        "ages": {"delay_s": 0.1, "workers": 4, "cases": {"no bound": ages}},
        "steps": {"m": summary([base, slow])},
    }
    write_report(document, tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "| no bound | 2 | 0.50 | 0.50 | 20.0 % | no |" in text
    assert "| server | 2.000 s | 2.000 s | +0.0 % | 2.000 | 2.000 | +0.0 % |" in text
    assert "Spearman 1.00" in text
    assert "\n3 processes wanted behind the turns" in text


def test_every_schedule_that_may_be_named_takes_its_turn(tmp_path: Path) -> None:
    """Each is a scenario that the executor runs, and the page tells their order."""
    made = schedule_cases()
    assert [case.name for case in made] == [*SCHEDULE_NAMES, "auto"]
    rows = []
    for number, case in enumerate(made[:-1]):
        path = tmp_path / f"{case.name}.yaml"
        path.write_text(scenario_text(case, before_calibration("cpu")), encoding="utf-8")
        assert load_scenario(path).fixed_plan().schedule == case.name
        seconds = 2.0 + 0.1 * number
        rows.append(Row(model="m", strategy=case.name, predicted=seconds, turns=(seconds,)))
    figures = summary(rows, "1f1b")
    machine = {"count": 2, "torch": "2.13", "load": 1.0}
    document = {"meta": {"machine": machine, "ranks": 2}, "schedules": figures}
    page = "\n".join(schedule_lines(document, "m"))
    assert "order of the schedules: Spearman 1.00" in page
    assert "\n1 process wanted behind the turns" in page
    assert "| 1f1b | 2.200 s | 2.200 s | +0.0 % | 1.000 | 1.000 | +0.0 % |" in page
