"""Jobs that the export of torchtitan's TOML writes and the import reads have the same step."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsim.errors import InputError
from parsim.frameworks.export import export_plan
from parsim.frameworks.reading import read_config
from parsim.scenario import load_scenario
from tests.commands import LLAMA
from tests.parsim.frameworks.reading.round_trips import notes_of_the_same_job_read

PIPELINE = {"pp": 2, "zero_stage": 1, "schedule": "interleaved_1f1b", "microbatch_size": 1}
PLANS: tuple[dict[str, object], ...] = (
    {"zero_stage": 2},
    {"zero_stage": 2, "tp": 2, "sequence_parallel": True, "recompute": "selective"},
    {**PIPELINE, "v": 2},
    {**PIPELINE, "v": 8},
    {**PIPELINE, "v": 4, "cp": 2, "recompute": "full"},
    {**PIPELINE, "schedule": "zb_v", "v": 2},
)


@pytest.mark.parametrize("plan", PLANS, ids=str)
@pytest.mark.parametrize("precision", ["bf16", "fp8", "fp8_rowwise"])
def test_a_job_that_was_exported_is_the_same_when_read(
    tmp_path: Path, plan: dict[str, object], precision: str
) -> None:
    changes = {"plan": plan, "training.precision": precision, "cluster.nodes": 1}
    changes |= {"training.global_batch_size": 32, "software": "torchtitan"}
    scenario = load_scenario(LLAMA, changes)
    notes_of_the_same_job_read(scenario, "torchtitan-0.2", tmp_path / "train.toml")


def test_layers_of_a_stage_that_make_no_stages_for_all_ranks(tmp_path: Path) -> None:
    scenario = load_scenario(LLAMA, {"plan": {**PIPELINE, "v": 8}, "software": "torchtitan"})
    text = export_plan(scenario, scenario.fixed_plan(), "torchtitan-0.2")
    file = tmp_path / "train.toml"
    file.write_text(text.replace("layers_per_stage = 2", "layers_per_stage = 3"), encoding="utf-8")
    words = r"layers_per_stage = 3 makes 11 stages of 32 layers.*a multiple of .* = 2, at least 4"
    with pytest.raises(InputError, match=words):
        read_config(file, scenario.job.system.id, scenario.job.cluster.num_nodes)
