"""The background block: what it becomes, round trips, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsim.cluster.background import Stream
from parsim.errors import ScenarioError
from parsim.scenario import Scenario, load_scenario, scenario_text

HEAD = """model: {name: llama3-8b}
cluster: {system: dgx-h100, nodes: 2}
software: torchtitan
training: {global_batch_size: 16, precision: bf16_amp}
plan: {zero_stage: 3, dp: 16}
"""
BLOCK = """background:
  storage_bandwidth: 40GB/s
  streams:
    checkpoint: {from: devices, to: storage, size: 3GB, every: 100}
    offload: {from: devices, to: hosts, rate: 5GB/s}
"""


def load(folder: Path, text: str, **overrides: str) -> Scenario:
    path = folder / "s.yaml"
    path.write_text(HEAD + text, encoding="utf-8")
    return load_scenario(path, {f"background.{key}": value for key, value in overrides.items()})


def test_a_scenario_without_the_block_has_no_streams(tmp_path: Path) -> None:
    scenario = load(tmp_path, "")
    assert scenario.background.streams == ()
    assert not scenario.needs_links
    assert "background" not in scenario_text(scenario, scenario.fixed_plan())


def test_the_block_becomes_streams(tmp_path: Path) -> None:
    scenario = load(tmp_path, BLOCK)
    assert scenario.needs_links
    assert scenario.background.storage_bandwidth == 40e9
    assert scenario.background.streams == (
        Stream(name="checkpoint", source="devices", target="storage", size=3e9, every=100),
        Stream(name="offload", source="devices", target="hosts", rate=5e9),
    )


def test_an_override_reaches_a_stream(tmp_path: Path) -> None:
    scenario = load(tmp_path, BLOCK, **{"streams.checkpoint.every": "10"})
    assert scenario.background.streams[0].every == 10


def test_it_is_written_and_read_again(tmp_path: Path) -> None:
    first = load(tmp_path, BLOCK)
    again = tmp_path / "again.yaml"
    again.write_text(scenario_text(first, first.fixed_plan()), encoding="utf-8")
    assert load_scenario(again).background == first.background


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("background: {streams: {x: {from: devices, to: hosts}}}", "either size"),
        ("background: {streams: {x: {from: devices, to: disk, size: 1GB}}}", "'disk' is unknown"),
        ("background: {streams: {x: {to: hosts, size: 1GB}}}", "from is missing"),
        (
            "background: {streams: {x: {from: devices, to: hosts, bytes: 1GB}}}",
            "x.bytes is an unknown key; allowed: from, to, size, rate, every",
        ),
        ("background: {streams: {x: {from: devices, to: hosts, size: 0GB}}}", "must be above 0"),
        (
            "background: {streams: {x: {from: hosts, to: storage, size: 1GB}}}",
            "storage_bandwidth is missing",
        ),
        (
            "background: {streams: {x: {from: hosts, to: devices, size: 1GB, every: 0}}}",
            "at least 1",
        ),
        ("background: {stream: {}}", "did you mean 'streams'"),
    ],
)
def test_mistakes_are_named_with_their_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ScenarioError) as wrong:
        load(tmp_path, text)
    assert message in str(wrong.value)
    assert str(wrong.value).startswith(f"{tmp_path / 's.yaml'}:6:")
