"""The strategy of a plan in a scenario's file: names, options, round trips, what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsim.errors import InputError
from parsim.plan.strategies import STRATEGY_KINDS, AsynchronousServer, BranchParallel, LocalSGD
from parsim.scenario import load_scenario, scenario_text
from parsim.strategy import STRATEGIES

HEAD = """\
model: {name: gpt2}
cluster: {system: dgx-1v, nodes: 2}
training: {global_batch_size: 16, precision: fp16}
plan:
"""


def scenario(folder: Path, strategy: str) -> Path:
    path = folder / "scenario.yaml"
    path.write_text(f"{HEAD}  strategy: {strategy}\n")
    return path


def test_every_strategy_is_explained() -> None:
    assert list(STRATEGIES) == list(STRATEGY_KINDS)


@pytest.mark.parametrize("name", STRATEGY_KINDS)
def test_a_name_stands_for_a_strategy_with_its_usual_options(name: str, tmp_path: Path) -> None:
    text = HEAD.replace("nodes: 2", "nodes: 1") + f"  strategy: {name}\n"
    if name in ("branch_parallel", "layout"):
        text = text.replace("gpt2", "multi-task-3-64")
    path = tmp_path / "scenario.yaml"
    path.write_text(text)
    assert load_scenario(path).fixed_plan().strategy == STRATEGY_KINDS[name]()


@pytest.mark.parametrize(
    ("text", "strategy"),
    [
        ("{name: local_sgd, every: 4, after: 10, steps: 20}",
         LocalSGD(every=4, after=10, steps=20)),
        ("{name: Asynchronous_Server, servers: 2, staleness: 3, compression: 0.5}",
         AsynchronousServer(servers=2, staleness=3, compression=0.5)),
    ],
)  # fmt: skip
def test_options_are_read_and_written_back(text: str, strategy: LocalSGD, tmp_path: Path) -> None:
    loaded = load_scenario(scenario(tmp_path, text))
    assert loaded.fixed_plan().strategy == strategy
    again = tmp_path / "again.yaml"
    again.write_text(scenario_text(loaded, loaded.fixed_plan()))
    assert load_scenario(again).fixed_plan() == loaded.fixed_plan()


def test_branches_are_read_and_written_back(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    strategy = "{name: branch_parallel, devices: 4, branches: {Mixed_5b.1: 1, Mixed_5b.pool: 3}}"
    path.write_text(HEAD.replace("gpt2", "inception-v3") + f"  strategy: {strategy}\n")
    plan = load_scenario(path).fixed_plan()
    placed = (("Mixed_5b.1", 1), ("Mixed_5b.pool", 3))
    assert plan.strategy == BranchParallel(devices=4, branches=placed)
    again = tmp_path / "again.yaml"
    again.write_text(scenario_text(load_scenario(path), plan))
    assert load_scenario(again).fixed_plan() == plan


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("local_sdg", r"5:3 plan.strategy 'local_sdg' is unknown \(did you mean 'local_sgd'"),
        ("{every: 2}", "plan.strategy.name is missing"),
        ("{name: local_sgd, every: 0}", "plan.strategy.every must be at least 1, got 0"),
        ("{name: gossip, every: 2}", "every is no option of name=gossip, but of local_sgd, diloco"),
        ("{name: parameter_server, sevrers: 2}", "sevrers is an unknown key .did you mean"),
        ("{name: parameter_server, servers: 5}", "servers=5 on hosts, but there are 2"),
        ("{name: parameter_server, on: moon}", "on"),
        ("data_parallel", "one process"),
    ],
)
def test_what_is_wrong_is_named_with_the_fix(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        load_scenario(scenario(tmp_path, text))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, "no rank knows the norm of a whole gradient while others are ahead"),
        ({"training.clip": "0.0"}, "the two copies of gpt2's tied table would be updated at"),
        ({"training.clip": "0.0", "model.tied_embeddings": "false"}, ""),
        ({"software": "generic"}, ""),
        ({"plan.schedule": "1f1b"}, ""),
    ],
)
def test_what_the_executor_would_refuse_is_told_before_it_runs(
    tmp_path: Path, change: dict[str, str], told: str
) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(
        "model: {name: gpt2}\ncluster: {system: cpu, nodes: 1, devices_per_node: 2}\n"
        "software: executor-cpu\ntraining: {global_batch_size: 8, precision: fp32}\n"
        "plan: {pp: 2, microbatch_size: 1, schedule: pipedream}\n",
        encoding="utf-8",
    )
    notes = [note for note in load_scenario(path, change).notes if "`parsim run` refuses" in note]
    assert [told in note for note in notes] == [True] * bool(told)
