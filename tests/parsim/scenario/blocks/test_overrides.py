"""Values that are given beside the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from parsim.cost.software import changed_switches
from parsim.errors import PlanError, ScenarioError
from parsim.plan import Recompute
from tests.parsim.scenario.blocks.written import load


def test_overrides_are_yaml(tmp_path: Path) -> None:
    overrides = {
        "plan.tp": "2",
        "plan.recompute": "full",
        "search.tp": "[1, 2]",
        "cluster.network.oversubscription": "2",
    }
    scenario = load(tmp_path, overrides)
    assert scenario.plan is not None
    assert scenario.space is not None
    assert (scenario.plan.tp, scenario.plan.dp, scenario.plan.recompute) == (2, 4, Recompute.FULL)
    assert scenario.space.tp == (1, 2)
    assert scenario.job.system.network is not None
    assert scenario.job.system.network.oversubscription == 2


def test_a_name_alone_becomes_a_block_for_overrides_below_it(tmp_path: Path) -> None:
    """docs/scenarios.md: `--set software.expert_overlap=1.0` beside `software: megatron-bridge`."""
    scenario = load(tmp_path, {"software.expert_overlap": "1.0"}, software="megatron-bridge")
    assert changed_switches(scenario.job.software) == {"expert_overlap": 1.0}
    overrides = {"plan": "{strategy: local_sgd}", "plan.strategy.every": "4"}
    plan = load(tmp_path, overrides).plan
    assert plan is not None
    assert plan.strategy.label() == "local_sgd every=4"
    with pytest.raises(ScenarioError, match=r"s\.yaml:9:2 software 'nobody' is unknown"):
        load(tmp_path, {"software.compile": "true"}, software="nobody")


@pytest.mark.parametrize("nothing", ["null", "~", ""])
def test_an_override_of_null_takes_a_key_away(tmp_path: Path, nothing: str) -> None:
    plan = {"tp": 2, "dp": 4}
    scenario = load(tmp_path, {"plan.dp": nothing, "plan.tp": "4"}, plan=plan)
    assert scenario.plan is not None
    assert scenario.plan.dp == 2
    assert load(tmp_path, {"plan": nothing}, search={}).plan is None


def test_overrides_can_be_values_of_python(tmp_path: Path) -> None:
    overrides = {
        "plan.tp": 4,
        "plan.sequence_parallel": True,
        "plan.microbatch_size": np.int64(2),
        "model.seq_len": 512,
        "cluster.network": {"oversubscription": 1.5},
        "plan.rank_order": ("pp", "dp_replicate", "dp_shard", "cp", "tp"),
        "software": None,
        "cluster.catalog": [Path("mine.yaml")],
    }
    (tmp_path / "mine.yaml").write_text("devices: {mine: {from: t4}}\n", encoding="utf-8")
    scenario = load(tmp_path, overrides)
    plan = scenario.fixed_plan()
    assert (plan.tp, plan.dp, plan.microbatch_size, plan.sequence_parallel) == (4, 2, 2, True)
    assert (scenario.spec.seq_len, scenario.job.software.id) == (512, "generic")
    assert scenario.catalog == (tmp_path / "mine.yaml",)
    with pytest.raises(PlanError, match=r"^--set plan\.tp=5 plan tp=5 does not divide"):
        load(tmp_path, {"plan.tp": 5})
    with pytest.raises(ScenarioError, match=r"^--set plan\.tp cannot be a object; give a number"):
        load(tmp_path, {"plan.tp": object()})


def test_an_override_can_be_a_whole_block(tmp_path: Path) -> None:
    scenario = load(tmp_path, {"plan": "{tp: 4, microbatch_size: 2}"}, plan={"tp": 2})
    assert scenario.plan is not None
    assert (scenario.plan.tp, scenario.plan.microbatch_size) == (4, 2)
