"""Which cut a plan has that states none: in a scenario and in a search by one rule."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from parsim.cost.software import software
from parsim.planner.search import search
from parsim.scenario.load import load_scenario
from parsim.scenario.record import Scenario
from parsim.sim.cuts import chooses_cut, with_better_cut
from parsim.sim.simulate import simulate

TEXT = """
model: {name: gpt2, seq_len: 256}
cluster: {system: dgx-a100, nodes: 1, devices_per_node: 4}
software: SOFTWARE
training: {global_batch_size: 16, precision: bf16}
plan: {pp: 4, microbatch_size: 1CUT}
search: {pp: 4, dp: 1, microbatch_size: 1, schedule: 1f1b, recompute: none, zero_stage: 0}
"""


def scenario(tmp_path: Path, stack: str = "generic", cut: str = "") -> Scenario:
    path = tmp_path / "s.yaml"
    path.write_text(TEXT.replace("SOFTWARE", stack).replace("CUT", cut), encoding="utf-8")
    return load_scenario(path)


def test_a_cut_that_nobody_states_counts_the_head(tmp_path: Path) -> None:
    """GPT-2's head is worth five of its layers: 3-3-3-3 waits for the last stage."""
    loaded = scenario(tmp_path)
    assert loaded.plan is not None
    assert loaded.plan.stage_layers is not None
    assert loaded.plan.stage_layers[-1] == 1
    even = simulate(loaded.job, replace(loaded.plan, stage_layers=None))
    assert simulate(loaded.job, loaded.plan).step_time < 0.9 * even.step_time


def test_a_search_shows_the_cut_that_a_scenario_has(tmp_path: Path) -> None:
    loaded = scenario(tmp_path)
    assert loaded.space is not None
    (best,) = search(loaded.job, loaded.space).plans
    assert loaded.plan is not None
    assert best.plan.stage_layers == loaded.plan.stage_layers
    assert best.step_time == simulate(loaded.job, loaded.plan).step_time


@pytest.mark.parametrize(
    ("stack", "cut"), [("generic", ", stage_layers: [3, 3, 3, 3]"), ("megatron-lm", "")]
)
def test_what_is_stated_or_the_stacks_own_stays(tmp_path: Path, stack: str, cut: str) -> None:
    loaded = scenario(tmp_path, stack, cut)
    assert loaded.plan is not None
    assert not chooses_cut(loaded.job, loaded.plan)
    assert loaded.plan.stage_layers in (None, (3, 3, 3, 3))


def test_the_even_cut_stays_where_the_other_is_slower(tmp_path: Path) -> None:
    """On one chunk a rank it is never slower; here a rank's chunks add up to more."""
    loaded = scenario(tmp_path)
    assert loaded.plan is not None
    for schedule, v in (("1f1b", 1), ("gpipe", 1), ("interleaved_1f1b", 3), ("zb_h1", 1)):
        plan = replace(loaded.plan, stage_layers=None, schedule=schedule, v=v)
        better = simulate(loaded.job, with_better_cut(loaded.job, plan))
        assert better.step_time <= simulate(loaded.job, plan).step_time


def test_the_choice_is_of_stacks(tmp_path: Path) -> None:
    assert software("generic").balanced_cut
    assert software("executor-cpu").balanced_cut
    assert not software("torchtitan").balanced_cut
