"""The jitter block: what it becomes, what is assumed, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsim.cost.jitter import DEFAULTS, Jitter
from parsim.errors import ScenarioError
from parsim.scenario import Scenario, load_scenario, scenario_text

HEAD = """\
model: {name: gpt2}
cluster: {system: dgx-a100, nodes: 1}
software: generic
training: {global_batch_size: 16, precision: bf16}
plan: {tp: 2}
"""


def load(folder: Path, block: str = "", **overrides: str) -> Scenario:
    path = folder / "s.yaml"
    path.write_text(HEAD + block, encoding="utf-8")
    return load_scenario(path, {f"jitter.{key}": value for key, value in overrides.items()})


def test_without_a_block_all_is_assumed(tmp_path: Path) -> None:
    jitter = load(tmp_path).jitter
    assert jitter == Jitter()
    assert jitter.assumptions() == tuple(DEFAULTS.values())


def test_every_default_says_where_it_comes_from() -> None:
    assert all("assumption" in words or "arXiv" in words for words in DEFAULTS.values())
    for name, words in DEFAULTS.items():
        value = getattr(Jitter(), name)
        written = "10ms" if name == "hiccup_length" else f"{value:g}"
        assert words.startswith(f"{name} {written}")


def test_a_block_is_the_record(tmp_path: Path) -> None:
    scenario = load(
        tmp_path,
        "jitter:\n  speed_spread: 0.02\n  noise: 0\n  hiccups: 0.5\n  hiccup_length: 20ms\n"
        "  slow_ranks: {7: 1.2, 3: 2}\n  clusters: 5\n",
    ).jitter
    assert scenario.slow_ranks == ((3, 2.0), (7, 1.2))
    assert (scenario.speed_spread, scenario.noise, scenario.hiccups) == (0.02, 0.0, 0.5)
    assert (scenario.hiccup_length, scenario.clusters) == (0.02, 5)
    assert scenario.assumptions() == ()
    assert scenario.active == ("speed_spread", "hiccups", "slow_ranks")


def test_the_command_line_sets_a_field(tmp_path: Path) -> None:
    scenario = load(
        tmp_path, "jitter: {noise: 0.5}\n", speed_spread="0.02", **{"slow_ranks.5": "1.1"}
    )
    assert (scenario.jitter.speed_spread, scenario.jitter.noise) == (0.02, 0.5)
    assert scenario.jitter.slow_ranks == ((5, 1.1),)


def test_a_written_scenario_keeps_what_was_stated(tmp_path: Path) -> None:
    block = "jitter: {speed_spread: 0.02, hiccup_length: 20ms, slow_ranks: {7: 1.2}}\n"
    first = load(tmp_path, block)
    again = tmp_path / "again.yaml"
    again.write_text(scenario_text(first, first.fixed_plan()), encoding="utf-8")
    assert load_scenario(again).jitter == first.jitter
    plain = load(tmp_path)
    assert "jitter" not in scenario_text(plain, plain.fixed_plan())


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("jitter: {noise: -1}", "s.yaml:6:10 jitter.noise must be at least 0, got -1"),
        ("jitter: {noise: 2}", "s.yaml:6:10 jitter.noise must be at most 1, got 2"),
        ("jitter: {noise: 2%}", "s.yaml:6:10 jitter.noise must be a plain number, got '2%'"),
        ("jitter: {hiccup_length: 3}", "jitter.hiccup_length bare number 3; write it with a unit"),
        ("jitter: {spread: 1}", "jitter.spread is an unknown key (did you mean 'speed_spread'?)"),
        ("jitter: {slow_ranks: 3}", "jitter.slow_ranks must be a block of 'key: value' lines"),
        ("jitter: {slow_ranks: {a: 2}}", "s.yaml:6:23 jitter.slow_ranks.a is no rank; write its"),
        ("jitter: {slow_ranks: {-1: 2}}", "jitter.slow_ranks.-1 is no rank"),
        ("jitter: {slow_ranks: {3: 0}}", "jitter.slow_ranks.3 must be above 0, got 0"),
        (
            "jitter: {slow_ranks: {8: 2}}",
            "jitter slow_ranks=8 is no rank of the plan; allowed: 0 to 7",
        ),
        ("jitter: {clusters: 0}", "jitter.clusters must be at least 1, got 0"),
        ("speed_spread: 1", "speed_spread is an unknown key (did you mean 'jitter.speed_spread'?)"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, block: str, message: str) -> None:
    with pytest.raises(ScenarioError) as error:
        load(tmp_path, f"{block}\n")
    assert message in str(error.value)
