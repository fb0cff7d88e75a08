"""Stages of their own in a scenario's file: read, written back, what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsim.errors import InputError
from parsim.plan.stages import Stage
from parsim.scenario import load_scenario, scenario_text

HEAD = """\
model: {name: gpt2}
cluster: {system: dgx-1v, nodes: 1}
training: {global_batch_size: 24, precision: fp16}
plan:
  stages:
"""
GOOD = (
    "  - {layers: 9, replicas: 6, recompute_layers: 2}\n  - {layers: 3, replicas: 2, warmup: 1}\n"
)


def written(folder: Path, stages: str, more: str = "") -> Path:
    path = folder / "scenario.yaml"
    path.write_text(f"{HEAD}{stages}{more}")
    return path


def test_stages_are_read_and_written_back(tmp_path: Path) -> None:
    loaded = load_scenario(written(tmp_path, GOOD))
    plan = loaded.fixed_plan()
    assert plan.stages == (
        Stage(layers=9, replicas=6, recompute_layers=2),
        Stage(layers=3, replicas=2, warmup=1),
    )
    assert (plan.pp, plan.dp, plan.world_size, plan.num_microbatches) == (2, 1, 8, 24)
    late = GOOD.replace("replicas: 6", "replicas: 6, late_update: true")
    loaded = load_scenario(written(tmp_path, late, "  schedule: pipedream\n"))
    plan = loaded.fixed_plan()
    assert [stage.late_update for stage in plan.stages or ()] == [True, False]
    again = tmp_path / "again.yaml"
    again.write_text(scenario_text(loaded, plan))
    assert load_scenario(again).fixed_plan() == plan


@pytest.mark.parametrize(
    ("stages", "more", "message"),
    [
        (GOOD, "  dp: 2\n", "dp_replicate=2 is for all alike"),
        (GOOD.replace("replicas: 6", "replicas: 5"), "", "stages have 7 ranks"),
        (GOOD.replace("replicas: 6", "copies: 6"), "", "copies"),
        (GOOD, "  microbatch_size: 4\n", r"replicas=6 .*num_microbatches=6|does not divide"),
        ("  - {layers: 12, replicas: 8}\n", "", "plain data parallelism; use dp"),
        (
            GOOD.replace("warmup: 1", "warmup: 100000"),
            "",
            r"stages\[1\]\.warmup=100000 keeps as many micro-batches at once; use at most 100",
        ),
        (GOOD, "  schedule: pipedream_2bw\n", "are for schedule='1f1b', 'pipedream', 'auto'"),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, stages: str, more: str, message: str) -> None:
    if "microbatch_size" in more:
        stages = stages.replace("replicas: 2", "replicas: 4").replace("replicas: 6", "replicas: 4")
    with pytest.raises(InputError, match=message):
        load_scenario(written(tmp_path, stages, more))
