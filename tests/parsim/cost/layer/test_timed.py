"""Operations with measured seconds: a part of each call, and a part of each sample."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from parsim.model.graph.document import graph_of, graph_text, read_graph
from parsim.model.graph.record import Graph
from parsim.scenario import load_scenario
from parsim.sim import simulate

OLD = """{"kind": "graph", "name": "old", "input_shape": [8], "nodes": [
  {"name": "a", "op": "measured", "from": ["input"], "output": [4], "forward_s": 1.0,
   "backward_s": 2.0, "parameters": 8, "kept_values": 8%s},
  {"name": "b", "op": "view", "from": ["a"], "output": [2, 2]},
  {"name": "loss", "op": "cross_entropy", "from": ["b"]}]}"""
NEW = ', "forward_call_s": 100.0, "backward_call_s": 200.0'
SCENARIO = """model: {file: m.json}
cluster: {system: cpu, nodes: 1, devices_per_node: 1}
software: executor-cpu
training: {global_batch_size: 8, precision: fp32}
"""


def graph(tmp_path: Path, more: str) -> Graph:
    (tmp_path / "m.json").write_text(OLD % more, encoding="utf-8")
    return read_graph(tmp_path / "m.json")


def parts(tmp_path: Path, plan: str) -> tuple[float, float]:
    (tmp_path / "s.yaml").write_text(f"{SCENARIO}plan: {plan}\n", encoding="utf-8")
    scenario = load_scenario(tmp_path / "s.yaml")
    assert scenario.plan is not None
    prediction = simulate(scenario.job, scenario.plan)
    return prediction.breakdown["forward"], prediction.breakdown["backward"]


def test_a_call_costs_its_part_however_many_samples(tmp_path: Path) -> None:
    graph(tmp_path, NEW)
    assert parts(tmp_path, "{microbatch_size: 8}") == pytest.approx((108.0, 216.0), rel=1e-3)
    assert parts(tmp_path, "{microbatch_size: 2}") == pytest.approx((408.0, 816.0), rel=1e-3)


def test_old_files_have_seconds_a_sample_alone(tmp_path: Path) -> None:
    graph(tmp_path, "")
    for plan in ("{microbatch_size: 8}", "{microbatch_size: 2}"):
        assert parts(tmp_path, plan) == pytest.approx((8.0, 16.0), rel=1e-3)


@pytest.mark.parametrize("more", ["", NEW])
def test_what_is_written_is_read_alike(tmp_path: Path, more: str) -> None:
    first = graph(tmp_path, more)
    assert graph_of(json.loads(graph_text(first))).nodes == first.nodes
    assert ("forward_call_s" in graph_text(first)) == bool(more)
