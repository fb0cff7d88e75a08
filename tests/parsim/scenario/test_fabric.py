"""A network's fabric that closed forms do not price: a note, and links simulated too."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsim.errors import ScenarioError
from parsim.scenario import Scenario, load_scenario
from tests.commands import Cli, runner

TEXT = """model: {name: bert-large}
cluster: {system: dgx-a100, nodes: 4}
training: {global_batch_size: 64, precision: bf16}
plan: {dp: 32, microbatch_size: 1}
"""


def scenario(folder: Path, **network: str) -> Scenario:
    path = folder / "s.yaml"
    path.write_text(TEXT)
    return load_scenario(path, {f"cluster.network.{key}": value for key, value in network.items()})


@pytest.mark.parametrize("fabric", ["ring", "torus-2d", "torus-3d", "dragonfly", "fat-tree"])
def test_another_fabric_needs_links_and_says_so(tmp_path: Path, fabric: str) -> None:
    rewired = scenario(tmp_path, fabric=fabric)
    assert rewired.needs_links
    assert f"cluster.network.fabric={fabric} changes routes" in " ".join(rewired.notes)


def test_the_usual_fabric_needs_none(tmp_path: Path) -> None:
    for network in ({}, {"fabric": "rail-optimised"}, {"oversubscription": "2"}):
        usual = scenario(tmp_path, **network)
        assert not usual.needs_links
        assert not any("fabric" in note for note in usual.notes)


def test_a_hash_over_spines_needs_links_and_says_so(tmp_path: Path) -> None:
    hashed = scenario(tmp_path, spines="8", nodes_per_leaf="2")
    assert hashed.needs_links
    assert "cluster.network.spines=8" in " ".join(hashed.notes)
    for network in ({"spines": "1", "nodes_per_leaf": "2"}, {"spines": "8", "nodes_per_leaf": "4"}):
        assert not scenario(tmp_path, **network).needs_links


def test_a_part_fails_once(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(TEXT)
    with pytest.raises(ScenarioError, match=r"cluster\.failed names nic:0\.0 twice"):
        load_scenario(path, {"cluster.failed": ["nic:0.0", "nic:0.0"]})


def test_one_node_hangs_on_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(TEXT.replace("nodes: 4", "nodes: 1").replace("dp: 32", "dp: 8"))
    assert not load_scenario(path, {"cluster.network.fabric": "ring"}).needs_links


def test_simulate_takes_a_ring_without_being_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli: Cli = runner(capsys)
    path = tmp_path / "s.yaml"
    path.write_text(TEXT)
    plain = cli("simulate", path, "--json").document
    ring = cli("simulate", path, "--set", "cluster.network.fabric=ring", "--json").document
    assert "contention" not in plain
    assert ring["contention"]["step_time_s"] >= ring["step_time_s"] * (1.0 - 1e-12)
