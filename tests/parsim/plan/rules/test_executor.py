"""What the executor cannot run is refused wherever a plan is named, searched or simulated."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parsim.cli.app import main
from parsim.cost.legal import illegal
from parsim.errors import PlanError
from parsim.plan import Plan
from parsim.plan.rules.executor.runnable import unrunnable
from parsim.planner.space import enumerate_plans
from parsim.scenario import Scenario, load_scenario
from parsim.sim import simulate
from tests.commands import ROOT

FILE = ROOT / "scenarios" / "gpt2-small-cpu.yaml"
UNEVEN = "tp=2 does not divide padded_vocab_size=50257; use padded_vocab_size=50258"


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Four processes and two schedules."""
    box = tmp_path_factory.mktemp("box") / "box.yaml"
    box.write_text("systems:\n  box: {from: cpu, devices_per_node: 4}\n")
    return {
        "cluster.system": "box",
        "cluster.catalog": f"[{box}]",
        "search.schedule": "[1f1b, zb_h1]",
    }


@pytest.fixture(scope="module")
def four(settings: dict[str, str]) -> Scenario:
    """A search over four processes."""
    return load_scenario(FILE, settings)


def plan(scenario: Scenario, **changes: object) -> Plan:
    return replace(scenario.fixed_plan(), **changes)  # type: ignore[arg-type]


def test_simulate_and_the_reader_refuse_a_vocabulary_that_does_not_split(
    four: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(PlanError, match=UNEVEN):
        simulate(four.job, plan(four, tp=2, dp_replicate=1, num_microbatches=4))
    for command in ("simulate", "run"):
        assert main([command, str(FILE), "--set", "plan.tp=2", "--set", "plan.pp=1"]) == 2
        assert UNEVEN in capsys.readouterr().err


def test_other_software_may_split_it(settings: dict[str, str]) -> None:
    other = load_scenario(FILE, {**settings, "software": "generic"})
    assert illegal(other.job, plan(other, tp=2, dp_replicate=1, num_microbatches=4)) is None


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"schedule": "zb_h1", "dp_replicate": 1, "dp_shard": 2, "zero_stage": 3},
            "zb_h1 splits the backward (it has 0I0), and zero_stage=3",
        ),
        (
            {
                "schedule": "own.csv",
                "actions": "0F0,0B0\n1F0,1I0,1W0\n",
                "dp_replicate": 1,
                "dp_shard": 2,
                "zero_stage": 3,
            },
            "own.csv splits the backward (it has 1I0), and",
        ),
        (
            {
                "schedule": "zb_h1",
                "dp_replicate": 1,
                "dp_shard": 2,
                "zero_stage": 2,
                "precision": "bf16",
            },
            "would then add up gradients in bf16",
        ),
        ({"precision": "fp16", "gradient_precision": "same"}, "small gradients would become zero"),
        ({"precision": "fp8"}, "products of 8 bit or less"),
    ],
)
def test_what_would_train_wrongly(four: Scenario, changes: dict[str, object], told: str) -> None:
    assert told in (unrunnable(plan(four, **changes), four.job.model) or "nothing")


@pytest.mark.parametrize(
    ("schedule", "actions"),
    [("1f1b", None), ("zb_h1", None), ("own.csv", "0F0,0B0\n1F0,1B0\n")],
)
def test_what_trains_as_it_should(four: Scenario, schedule: str, actions: str | None) -> None:
    first = plan(four, schedule=schedule, actions=actions, dp_replicate=1, dp_shard=2, zero_stage=2)
    assert unrunnable(first, four.job.model) is None


def test_a_model_without_a_loss(four: Scenario) -> None:
    bert = load_scenario(FILE, {"model.name": "bert-base", "model.head": "mlm"}).job.model
    headless = replace(bert, layers=(*bert.layers[:-1], replace(bert.layers[-1], parts=())))
    assert "without a loss to train it with; set a head" in (
        unrunnable(four.fixed_plan(), headless) or "nothing"
    )


def test_a_search_holds_what_can_be_run_and_counts_the_rest(four: Scenario) -> None:
    assert four.space is not None
    searched = enumerate_plans(four.job, four.space)
    assert searched.table is not None
    plans = [searched.table.plan(i) for i in range(len(searched.table))]
    assert [illegal(four.job, plan) for plan in plans] == [None] * len(plans)
    assert {plan.tp for plan in plans} == {1}
    assert {plan.schedule for plan in plans} >= {"1f1b", "zb_h1"}
    assert searched.enumerated == len(plans) + searched.illegal
    assert sum(searched.reasons.values()) == searched.illegal
    told = " ".join(searched.reasons)
    assert UNEVEN in told
    assert "zero_stage=3 (fully_shard with" in told


def test_sequences_that_do_not_split_are_not_proposed() -> None:
    scenario = load_scenario(FILE, {"software": "generic", "model.seq_len": "127"})
    assert scenario.space is not None
    searched = enumerate_plans(scenario.job, scenario.space)
    assert searched.table is not None
    assert not searched.table.sequence_parallel.any()
