"""What an update costs by its optimizer: bytes that stay, and seconds of what is moved."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsim.cost.job import ADAMW, OPTIMIZERS
from parsim.scenario import load_scenario, scenario_text
from parsim.sim import Prediction, simulate

CPU, GPU = Path("scenarios/gpt2-small-cpu.yaml"), Path("scenarios/gpt3-175b-dgx-a100.yaml")
ALONE = {"plan.pp": 1, "plan.zero_stage": 0, "plan.schedule": "gpipe"}


def predicted(path: Path, **training: object) -> Prediction:
    changes = {f"training.{key}": value for key, value in training.items()}
    scenario = load_scenario(path, {**(ALONE if path is CPU else {}), **changes})
    return simulate(scenario.job, scenario.fixed_plan())


@pytest.mark.parametrize(("name", "saved"), [("sgd", 8), ("sgd_momentum", 4)])
def test_states_that_are_not_kept(name: str, saved: int) -> None:
    usual, other = predicted(CPU), predicted(CPU, optimizer=name)
    parameters = load_scenario(CPU).job.model.parameters
    assert usual.memory["optimizer"] - other.memory["optimizer"] == saved * parameters
    assert usual.peak_allocated[0] - other.peak_allocated[0] == saved * parameters


def test_bytes_that_are_not_moved() -> None:
    job = load_scenario(CPU).job
    rate = job.device.memory_bandwidth * job.device.memory_efficiency
    seconds = {name: predicted(CPU, optimizer=name).breakdown["optimizer"] for name in OPTIMIZERS}
    for name, optimizer in OPTIMIZERS.items():
        saved = (ADAMW.moved - optimizer.moved) * job.model.parameters / rate
        assert seconds["adamw"] - seconds[name] == pytest.approx(saved, rel=1e-9)


def test_the_norm_is_read_and_clipping_reads_and_writes() -> None:
    job = load_scenario(CPU).job
    rate = job.device.memory_bandwidth * job.device.memory_efficiency
    clipped, whole = predicted(CPU).breakdown, predicted(CPU, clip=0.0).breakdown
    apart = clipped["gradient_norm"] - whole["gradient_norm"]
    assert apart == pytest.approx(8 * job.model.parameters / rate, rel=1e-9)
    assert whole["gradient_norm"] > 4 * job.model.parameters / rate


def test_stacks_whose_update_holds_it_all_cost_what_they_did() -> None:
    assert predicted(GPU).step_time == predicted(GPU, clip=0.0).step_time


def test_a_scenario_says_what_is_unusual() -> None:
    usual = load_scenario(CPU)
    unusual = load_scenario(CPU, {"training.optimizer": "SGD", "training.clip": 0.5})
    assert "optimizer" not in scenario_text(usual, usual.fixed_plan())
    text = scenario_text(unusual, unusual.fixed_plan())
    assert "  optimizer: sgd\n  clip: 0.5\n" in text
