"""What is told of wrong keys and values, character by character."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsim.errors import ScenarioError
from parsim.scenario.schema.file import BLOCKS
from tests.parsim.scenario.messages.wrong_scenarios import NEAREST, changed, of_keys, wrong

SIZES = "allowed units are B, KB, MB, GB, TB, KiB, MiB, GiB, TiB; e.g. '80GiB'"
BUCKETS = SIZES.replace("80GiB", "25MiB")
BLOCK = "must be a block of 'key: value' lines"


def keys(*path: str) -> str:
    return ", ".join(BLOCKS[path].model_fields)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        # keys
        (
            "  tp: 4",
            "  microbatch_sizes: 4",
            "s.yaml:10:3 plan.microbatch_sizes is an unknown key"
            + of_keys("microbatch_sizes", "plan"),
        ),
        (
            "  nodes: 1",
            "  nods: 1",
            "s.yaml:4:1 cluster.nodes is missing; e.g. 'nodes: 1'\n"
            f"s.yaml:6:3 cluster.nods is an unknown key (did you mean 'nodes'?); "
            f"allowed: {keys('cluster')}, groups",
        ),
        (
            "plan:",
            "tp: 4\nplan:",
            f"s.yaml:9:1 tp is an unknown key (did you mean 'plan.tp'?); allowed: {keys()}",
        ),
        (
            "  name: gpt2",
            "  name: gpt2\n  layers: 3",
            f"s.yaml:4:3 model.layers is an unknown key{of_keys('layers', 'model')}",
        ),
        (
            "  tp: 4",
            "  tp: 4\n  pp: 1\n  tp: 2",
            "s.yaml:12:3 plan.tp is written twice; first on line 10",
        ),
        (
            "training:\n  global_batch_size: 16\n",
            "",
            "s.yaml:1:1 training is missing; e.g. 'training: {global_batch_size: 1536}'",
        ),
        (
            "  global_batch_size: 16",
            "  # later",
            "s.yaml:7:1 training.global_batch_size is missing; give the sequences of one step, "
            "e.g. 1536",
        ),
        (
            "plan:\n  tp: 4\nsearch:\n",
            "",
            "s.yaml:1:1 has no plan block and no search block; add 'search: {}' to search every "
            "legal plan",
        ),
        # kinds
        ("  tp: 4", "  tp: '4'", "s.yaml:10:3 plan.tp must be a whole number, got '4'"),
        ("  tp: 4", "  tp: 4.0", "s.yaml:10:3 plan.tp must be a whole number, got 4.0; write 4"),
        ("  tp: 4", "  tp: true", "s.yaml:10:3 plan.tp must be a whole number, got true"),
        ("  tp: 4", "  tp:", "s.yaml:10:3 plan.tp must be a whole number, got null"),
        ("  tp: 4", "  tp: [4]", "s.yaml:10:3 plan.tp must be a whole number, got a list"),
        ("  tp: 4", "  tp: 0", "s.yaml:10:3 plan.tp must be at least 1, got 0"),
        (
            "  nodes: 1",
            "  nodes: 1000000000000",
            "s.yaml:6:3 cluster.nodes must be at most 1000000000, got 1000000000000",
        ),
        (
            "  tp: 4",
            "  sequence_parallel: yes",
            "s.yaml:10:3 plan.sequence_parallel must be true or false, got 'yes'",
        ),
        (
            "  tp: 4",
            "  sequence_parallel: 1",
            "s.yaml:10:3 plan.sequence_parallel must be true or false, got 1",
        ),
        ("  name: gpt2", "  name: 2", "s.yaml:3:3 model.name must be text, got 2"),
        (
            "  name: gpt2",
            "  name: ''",
            "s.yaml:3:3 model.name must be a text that is not empty, got ''",
        ),
        (
            "model:\n  name: gpt2",
            "model: gpt2",
            f"s.yaml:2:1 model {BLOCK}, got 'gpt2'; e.g. 'model: {{name: gpt3-175b}}'",
        ),
        ("plan:\n  tp: 4", "plan: [tp, 4]", f"s.yaml:9:1 plan {BLOCK}, got a list"),
        ("  tp: 4", "  stage_layers: 3", "s.yaml:10:3 plan.stage_layers must be a list, got 3"),
        (
            "  tp: 4",
            "  action_times: [1, 1, 1]",
            "s.yaml:10:3 plan.action_times must be a list of at least 5 values, got 3",
        ),
        (
            "  tp: 4",
            "  action_times: [1, 1, 1, 1, 1, 1]",
            "s.yaml:10:3 plan.action_times must be a list of at most 5 values, got 6",
        ),
        (
            "  tp: 4",
            "  action_times: [1, 1ms, 1, true, 1]",
            "s.yaml:10:21 plan.action_times.1 must be a plain number, got '1ms'\n"
            "s.yaml:10:29 plan.action_times.3 must be a plain number, got true",
        ),
        (
            "  tp: 4",
            "  stage_layers: [6,\n    x]",
            "s.yaml:11:5 plan.stage_layers.1 must be a whole number, got 'x'",
        ),
        (
            "  tp: 4",
            "  recompute: ful",
            "s.yaml:10:3 plan.recompute 'ful' is unknown (did you mean 'full'?); "
            "allowed: none, selective, full",
        ),
        (
            "  tp: 4",
            "  recompute: true",
            "s.yaml:10:3 plan.recompute true is unknown; allowed: none, selective, full",
        ),
        # units
        (
            "  tp: 4",
            "  bucket_size: 25000000",
            "s.yaml:10:3 plan.bucket_size bare number 25000000; write it with a unit, "
            "e.g. '25000000B'",
        ),
        (
            "  tp: 4",
            "  bucket_size: 25ms",
            f"s.yaml:10:3 plan.bucket_size '25ms' is not a size: {BUCKETS}",
        ),
        (
            "  tp: 4",
            "  bucket_size: 25mb",
            "s.yaml:10:3 plan.bucket_size '25mb' is not a size (did you mean 'MB'?): " + BUCKETS,
        ),
        ("  tp: 4", "  bucket_size: 0MB", "s.yaml:10:3 plan.bucket_size '0MB' must be above 0"),
        (
            "  nodes: 1",
            "  nodes: 1\n  network:\n    latency: 3",
            "s.yaml:8:5 cluster.network.latency bare number 3; write it with a unit, e.g. '3us'",
        ),
        (
            "  nodes: 1",
            "  nodes: 1\n  network: {oversubscription: 0.5}",
            "s.yaml:7:13 cluster.network.oversubscription must be at least 1, got 0.5",
        ),
        (
            "  nodes: 1",
            "  nodes: 1\n  intra: {efficiency: .nan}",
            "s.yaml:7:11 cluster.intra.efficiency must be a finite number, got nan",
        ),
        (
            "  nodes: 1",
            "  nodes: 1\n  intra: {efficiency: 0}",
            "s.yaml:7:11 cluster.intra.efficiency must be above 0, got 0",
        ),
        (
            "  nodes: 1",
            "  nodes: 1\n  intra: {efficiency: high}",
            "s.yaml:7:11 cluster.intra.efficiency must be a plain number, got 'high'",
        ),
        # the search
        (
            "search:",
            "search: {tp: []}",
            "s.yaml:11:10 search.tp must be a list of at least one value, got an empty list",
        ),
        ("search:", "search: {tp: }", "s.yaml:11:10 search.tp must be a list, got null"),
        (
            "search:",
            "search: {v: [1, x]}",
            "s.yaml:11:17 search.v.1 must be a whole number, got 'x'",
        ),
        (
            "search:",
            "search: {schedule: 1f1}",
            "s.yaml:11:10 search.schedule '1f1' is unknown (did you mean '1f1b'?); "
            + NEAREST.replace("23", "20"),
        ),
        (
            "search:",
            "search: {zero_stage: 4}",
            "s.yaml:11:10 search.zero_stage must be at most 3, got 4",
        ),
        (
            "search:",
            "search: {memory_margin: 1.5}",
            "s.yaml:11:10 search.memory_margin must be below 1, got 1.5",
        ),
    ],
)
def test_keys_and_values(tmp_path: Path, old: str, new: str, message: str) -> None:
    error = wrong(tmp_path, changed(old, new))
    assert str(error) == message
    assert type(error) is ScenarioError


def test_every_mistake_is_told_at_once(tmp_path: Path) -> None:
    text = changed("  tp: 4", "  tp: four\n  pp: 0").replace("nodes: 1", "nodes: -1")
    assert str(wrong(tmp_path, text)) == (
        "s.yaml:6:3 cluster.nodes must be at least 1, got -1\n"
        "s.yaml:10:3 plan.tp must be a whole number, got 'four'\n"
        "s.yaml:11:3 plan.pp must be at least 1, got 0"
    )
