"""Scenarios with groups of nodes: what they resolve to, what is refused and where."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsim.errors import InputError
from parsim.scenario import load_scenario, scenario_text
from parsim.sim import simulate

TEXT = """\
model:
  name: gpt2
cluster:
  groups:
    fast:
      system: dgx-h100
      nodes: 1
      devices_per_node: 2
    slow:
      system: dgx-a100
      nodes: 1
      devices_per_node: 2
      network: {nic_bandwidth: 100Gb/s}
software: megatron-te-2025
training:
  global_batch_size: 16
  precision: bf16
plan:
  pp: 2
  dp: 2
"""


def written(folder: Path, text: str = TEXT) -> Path:
    path = folder / "s.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def wrong(folder: Path, text: str, **overrides: str) -> str:
    with pytest.raises(InputError) as error:
        load_scenario(written(folder, text), overrides)
    return str(error.value).replace(f"{folder}/", "")


def test_groups_are_read(tmp_path: Path) -> None:
    scenario = load_scenario(written(tmp_path))
    fast, slow = scenario.job.cluster.groups
    assert (fast.name, fast.system.id, fast.num_nodes) == ("fast", "dgx-h100", 1)
    assert slow.system.network is not None
    assert slow.system.network.nic_bandwidth == 12.5e9
    assert scenario.job.cluster.num_devices == 4
    assert scenario.notes == (
        "group fast: devices_per_node=2 of 8: 2 of 8 network interfaces of a node are used",
        "group slow: devices_per_node=2 of 8: 2 of 8 network interfaces of a node are used",
    )


def test_what_if_on_one_group(tmp_path: Path) -> None:
    path = written(tmp_path)
    key = "cluster.groups.slow"
    base, wide, same = (
        load_scenario(path, overrides)
        for overrides in (
            {},
            {f"{key}.network.nic_bandwidth": "400Gb/s"},
            {f"{key}.device": "h100-sxm-80gb"},
        )
    )
    steps = [simulate(group.job, group.fixed_plan()).step_time for group in (base, wide, same)]
    assert steps[1] < steps[0]
    assert steps[2] < steps[0]
    groups = same.job.cluster.groups
    assert [group.system.device.id for group in groups] == ["h100-sxm-80gb"] * 2


PLANS: tuple[dict[str, str], ...] = (
    {},
    {"plan.node_order": "[slow, fast]", "plan.stage_layers": "[4, 8]"},
    {
        "plan.replica_microbatches": "[11, 5]",
        "plan.rank_order": "[dp_replicate, dp_shard, pp, cp, tp]",
    },
    {"cluster.placement": "[3, 2, 1, 0]"},
)


@pytest.mark.parametrize("overrides", PLANS)
def test_a_saved_scenario_is_the_same(tmp_path: Path, overrides: dict[str, str]) -> None:
    first = load_scenario(written(tmp_path), overrides)
    again = load_scenario(written(tmp_path, scenario_text(first, first.fixed_plan())))
    assert (again.job, again.plan) == (first.job, first.plan)


def test_the_batch_is_conserved(tmp_path: Path) -> None:
    plan = load_scenario(written(tmp_path), PLANS[2]).fixed_plan()
    assert plan.microbatches == (11, 5)
    assert (plan.num_microbatches, plan.global_batch_size) == (11, 16)
    assert "m11/5" in plan.label()
    assert plan.to_json()["replica_microbatches"] == (11, 5)


def test_a_search_has_nodes_and_batches_of_its_own(tmp_path: Path) -> None:
    space = load_scenario(written(tmp_path), PLANS[2] | PLANS[1]).plan_space()
    assert (space.common.node_order, space.common.replica_microbatches) == (None, None)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "    slow:\n",
            "    slow:\n      nods: 1\n",
            "s.yaml:10:7 cluster.groups.slow.nods is an unknown key (did you mean 'nodes'?); "
            "allowed: system, nodes, device, devices_per_node, intra, network",
        ),
        (
            "  groups:\n",
            "  system: dgx-a100\n  groups:\n",
            "s.yaml:4:3 cluster.system stands beside cluster.groups; each group of nodes has its "
            "own: write it as cluster.groups.NAME.system",
        ),
        ("dgx-h100", "dgx-h10", "s.yaml:6:7 cluster.groups.fast.system unknown system 'dgx-h10'"),
        (
            "      system: dgx-h100\n",
            "",
            "s.yaml:5:5 cluster.groups.fast.system is missing; e.g. 'system: dgx-a100'",
        ),
        (
            "nic_bandwidth",
            "nic_bandwith",
            "s.yaml:13:17 cluster.groups.slow.network.nic_bandwith is an unknown key "
            "(did you mean 'nic_bandwidth'?)",
        ),
        (
            "devices_per_node: 2\n    slow",
            "devices_per_node: 9\n    slow",
            "s.yaml:8:7 cluster.groups.fast.devices_per_node is 9, more than the 8",
        ),
        (
            TEXT[TEXT.index("      system: dgx-a100") : TEXT.index("software")],
            "      system: cpu\n      nodes: 1\n",
            "s.yaml:4:3 cluster.groups group slow: system cpu has no network",
        ),
        ("  groups:\n", "  group:\n", "cluster.group is an unknown key (did you mean 'groups'?)"),
        (
            "  pp: 2\n",
            "  pp: 2\n  node_order: [slow, fst]\n",
            "s.yaml:20:3 plan node_order=[slow, fst] names group 'fst' (did you mean 'fast'?)",
        ),
        (
            "  pp: 2\n",
            "  pp: 2\n  replica_microbatches: [11, 6]\n",
            "plan replica_microbatches=[11, 6] x microbatch_size=1 = 17, but global_batch_size=16; "
            "sum to 16",
        ),
        (
            "  pp: 2\n",
            "  pp: 2\n  replica_microbatches: [11, 4, 1]\n",
            "replica_microbatches=[11, 4, 1] has 3 entries, but dp=2",
        ),
        (
            "  dp: 2\n",
            "  dp: 2\n  zero_stage: 3\n  replica_microbatches: [11, 5]\n",
            "exchange shards in every micro-batch",
        ),
        (
            "precision: bf16",
            "precision: fp8",
            "precision='fp8' has no peak on device a100-sxm-80gb",
        ),
        (
            "  dp: 2\n",
            "  dp: 2\n  num_microbatches: 8\n  replica_microbatches: [11, 5]\n",
            "replica_microbatches=[11, 5]: entries must be at least 1, and num_microbatches=8 the "
            "largest of them",
        ),
    ],
)
def test_what_is_wrong_and_where(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert old in TEXT
    message = wrong(tmp_path, TEXT.replace(old, new, 1))
    assert expected in message


def test_one_kind_has_no_order_of_nodes(tmp_path: Path) -> None:
    text = TEXT[: TEXT.index("  groups")] + "  {system: dgx-a100, nodes: 1}\n"
    text = text.replace("cluster:\n  ", "cluster: ") + TEXT[TEXT.index("software") :]
    text = text.replace("  pp: 2\n  dp: 2\n", "  pp: 2\n  node_order: [a]\n")
    assert "all nodes are alike" in wrong(tmp_path, text)
