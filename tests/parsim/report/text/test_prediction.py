"""The answer in a box."""

from __future__ import annotations

import re
from pathlib import Path

from rich.console import Console

from parsim.report.text.prediction import WIDTH, answer_view, interval_bar, prediction_view
from parsim.scenario import load_scenario
from parsim.sim import simulate

ROOT = Path(__file__).parents[4]


def test_the_box_has_plan_time_interval_and_picture() -> None:
    scenario = load_scenario(ROOT / "scenarios" / "llama3-8b-dgx-h100.yaml")
    prediction = simulate(scenario.job, scenario.fixed_plan())
    console = Console(width=200, no_color=True)
    with console.capture() as text:
        console.print(answer_view(prediction, plan_file="p.yaml", picture="x.png", title="job"))
    lines = text.get().splitlines()
    assert {len(line) for line in lines} == {WIDTH}
    assert lines[0].startswith("╭─ job ─")
    for word in (prediction.plan.label(), interval_bar(prediction), "p.yaml", "x.png"):
        assert any(word in line for line in lines), word


def test_the_dot_stands_where_the_prediction_is_in_its_interval() -> None:
    scenario = load_scenario(ROOT / "scenarios" / "llama3-8b-dgx-h100.yaml")
    prediction = simulate(scenario.job, scenario.fixed_plan())
    drawn = re.search(r"├(─*)●(─*)┤", interval_bar(prediction))
    assert drawn is not None
    before, after = map(len, drawn.groups())
    interval = prediction.interval
    share = (prediction.step_time - interval.low) / (interval.high - interval.low)
    assert abs(before / (before + after) - share) <= 0.5 / (before + after) + 1e-9


def test_a_peak_without_activations_has_no_table_of_them() -> None:
    scenario = load_scenario(ROOT / "scenarios" / "gpt2-small-cp-cpu.yaml")
    prediction = simulate(scenario.job, scenario.fixed_plan())
    assert not prediction.activations
    console = Console(width=100, no_color=True)
    with console.capture() as text:
        console.print(prediction_view(prediction))
    assert "by what keeps them" not in text.get()


def test_the_samples_of_a_strategy_are_told_once_and_its_bubble_never() -> None:
    scenario = load_scenario(
        ROOT / "scenarios" / "resnet50-dgx-1v.yaml", {"plan.strategy": "data_parallel"}
    )
    prediction = simulate(scenario.job, scenario.fixed_plan())
    console = Console(width=200, no_color=True)
    with console.capture() as text:
        console.print(prediction_view(prediction))
        console.print(answer_view(prediction, plan_file="p.yaml", picture="x.png"))
    told = text.get()
    assert told.count("\nsamples/s ") == 1
    assert "pipeline phase" not in told
