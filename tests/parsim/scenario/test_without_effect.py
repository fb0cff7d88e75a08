"""What a scenario states in vain is named: no key is silently ignored."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsim.errors import ScenarioError
from parsim.scenario import load_scenario

TEXTS = {
    "one": "model: {name: gpt2}\ncluster: {system: dgx-h100, nodes: 1, devices_per_node: 1}\n"
    "software: generic\ntraining: {global_batch_size: 8, precision: bf16}\n"
    "plan: {microbatch_size: 1}\n",
    "pipeline": "model: {name: llama3-8b}\ncluster: {system: dgx-h100, nodes: 1}\n"
    "software: generic\ntraining: {global_batch_size: 16, precision: bf16}\n"
    "plan: {tp: 2, pp: 4, microbatch_size: 1, schedule: 1f1b}\n",
    "images": "model: {name: resnet50}\ncluster: {system: dgx-1v, nodes: 1}\n"
    "software: generic\ntraining: {global_batch_size: 64, precision: fp32}\n"
    "plan: {dp: 8, microbatch_size: 8}\n",
    "own": "model: {name: gpt2}\ncluster: {system: dgx-1v, nodes: 1}\n"
    "software: generic\ntraining: {global_batch_size: 24, precision: fp32}\n"
    "plan: {microbatch_size: 1, stages: [{layers: 4, replicas: 2}, {layers: 8, replicas: 6}]}\n",
    "experts": "model: {name: mixtral-8x7b}\ncluster: {system: dgx-h100, nodes: 1}\n"
    "software: {name: generic}\ntraining: {global_batch_size: 16, precision: bf16}\n"
    "plan: {ep: 8, dp_shard: 8, zero_stage: 3, microbatch_size: 1}\n",
}


def vain(folder: Path, name: str, key: str, value: str) -> list[str]:
    path = folder / f"{name}.yaml"
    path.write_text(TEXTS[name], encoding="utf-8")
    notes = load_scenario(path, {key: value}).notes
    return [note for note in notes if " has no effect on the prediction: " in note]


@pytest.mark.parametrize("name", TEXTS)
def test_plain_scenarios_state_nothing_in_vain(tmp_path: Path, name: str) -> None:
    assert not vain(tmp_path, name, "training.precision", "fp32")


def test_a_plan_s_own_precision_is_the_stated_one(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(TEXTS["one"].replace(", precision: bf16", ""), encoding="utf-8")
    assert "precision is not stated: 'bf16' is assumed" in load_scenario(path).notes
    stated = load_scenario(path, {"plan.precision": "fp8"})
    assert not [note for note in stated.notes if note.startswith("precision is not stated")]
    (note,) = vain(tmp_path, "one", "plan.precision", "fp8")
    assert note.startswith("training.precision has no effect")
    assert note.endswith("plan.precision=fp8 is the plan's")


@pytest.mark.parametrize(
    ("name", "key", "value", "why"),
    [
        ("one", "plan.schedule", "gpipe", "with pp=1 a rank has its micro-batches one by one"),
        ("one", "plan.overlap_p2p", "false", "with pp=1 no rank sends to another stage"),
        ("images", "plan.scatter_p2p", "true", "with pp=1 no rank sends to another stage"),
        ("one", "plan.bucket_size", "1MiB", "a single replica reduces no gradients"),
        ("pipeline", "plan.overlap_grad_reduce", "false", "a single replica reduces no"),
        ("pipeline", "plan.overlap_param_gather", "false", "without ZeRO no rank gathers"),
        ("pipeline", "plan.cp_comm_type", "a2a", "with cp=1 every rank has whole sequences"),
        ("pipeline", "plan.action_times", "[1.0, 2.0, 1.0, 0.1, 1.0]", "schedule=1f1b does not"),
        ("pipeline", "plan.sync_batch_norm", "true", "llama3-8b has no batch normalisation"),
        ("images", "plan.rank_order", "[pp, tp, cp, dp_shard, dp_replicate]", "fewer than two"),
        ("images", "plan.recompute_modules", "[core_attn]", "resnet50 has no core_attn"),
        ("one", "plan.recompute_modules", "[mlp, moe_act]", "gpt2 has no moe_act"),
        ("one", "training.clip", "0.0", "what software generic takes for clipping is in its"),
        ("one", "training.pue", "1.2", "without training.tokens no whole run is asked for"),
        ("one", "failures.restart_time", "10min", "without training.tokens no whole run"),
        ("one", "background.storage_bandwidth", "1GB/s", "no stream begins or ends at storage"),
        ("one", "software.expert_overlap", "0.5", "gpt2 has no experts"),
        ("images", "software.tp_overlap", "true", "with tp=1 no product has a collective"),
        ("experts", "software.expert_choice", "consecutive", "alltoall sends a copy to each of"),
        ("one", "software.fp8_scales", "current", "bf16 has no scales of whole tensors"),
    ],
)
def test_a_key_without_effect_is_named(
    tmp_path: Path, name: str, key: str, value: str, why: str
) -> None:
    (note,) = vain(tmp_path, name, key, value)
    assert note.startswith(f"{key} has no effect on the prediction: {why}")


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("pipeline", "plan.schedule", "gpipe"),
        ("pipeline", "plan.overlap_p2p", "false"),
        ("pipeline", "plan.rank_order", "[tp, cp, dp_shard, dp_replicate, pp]"),
        ("images", "plan.sync_batch_norm", "true"),
        ("images", "plan.bucket_size", "1MiB"),
        ("own", "plan.overlap_grad_reduce", "false"),
        ("one", "plan.recompute_modules", "[mlp]"),
        ("one", "plan.overlap_p2p", "true"),  # what the software does anyway
    ],
)
def test_a_key_with_an_effect_has_no_note(tmp_path: Path, name: str, key: str, value: str) -> None:
    assert not vain(tmp_path, name, key, value)


def test_degrees_beside_stages_are_refused(tmp_path: Path) -> None:
    for key in ("dp_shard", "dp_replicate"):
        with pytest.raises(ScenarioError, match=f"{key} cannot stand beside stages, each of which"):
            vain(tmp_path, "own", f"plan.{key}", "2")


def test_an_unknown_network_is_named_before_its_sizes(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(TEXTS["images"].replace("resnet50", "vgg17, num_classes: 10"), encoding="utf-8")
    with pytest.raises(ScenarioError, match=r"model 'vgg17' is not in .*did you mean 'vgg1"):
        load_scenario(path)
    path.write_text(TEXTS["one"].replace("gpt2", "gpt2, num_classes: 10"), encoding="utf-8")
    with pytest.raises(ScenarioError, match=r"model\.num_classes belongs to networks"):
        load_scenario(path)
