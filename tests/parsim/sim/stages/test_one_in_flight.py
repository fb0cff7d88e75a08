"""Memory of pipelines that our own ranks run: messages as they come, gradients of one backward."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsim.scenario import load_scenario
from parsim.sim import simulate
from parsim.sim.stages.one_in_flight import highest_alone, updates_each
from parsim.sim.stages.run import TaskRun
from parsim.timelines.timeline import MemoryCurve

TEXT = """
description: four layers of width 256 on two CPU ranks
model: {name: gpt2, num_layers: 4, hidden_size: 256, num_attention_heads: 4,
        num_key_value_heads: 4, head_dim: 64, ffn_hidden_size: 1024, vocab_size: VOCAB,
        seq_len: 128, positions: 128, dropout: false, tied_embeddings: false}
cluster: {system: cpu, nodes: 1, devices_per_node: DEVICES}
software: executor-cpu
training: {global_batch_size: 16, precision: PRECISION, clip: 0}
plan: {pp: 2, tp: TP, microbatch_size: 2, schedule: RULE}
"""
BORDER = 2 * 128 * 256 * 4

MEASURED = {
    ("pipedream", "fp32", 1): (62_672_012, 49_125_528),
    ("pipedream", "bf16", 1): (59_915_404, 49_659_160),
    ("pipedream_2bw", "fp32", 1): (72_914_060, 70_154_392),
    ("pipedream_2bw", "bf16", 1): (64_123_148, 65_430_808),
    ("pipedream_2bw", "fp32", 2): (31_455_884, 25_549_976),
    ("pipedream_2bw", "bf16_amp", 2): (30_537_484, 25_025_816),
    ("pipedream_2bw", "bf16", 2): (25_810_700, 22_530_328),
}
"""Highest bytes of both stages on CPU ranks (`parsim run`): 4,096 words, with tp 2 1,024."""


def scenario(folder: Path, rule: str, precision: str, tp: int) -> Path:
    path = folder / "small.yaml"
    words = {"RULE": rule, "PRECISION": precision, "TP": str(tp), "DEVICES": str(2 * tp)}
    text = TEXT.replace("VOCAB", "1024" if tp > 1 else "4096")
    for name, value in words.items():
        text = text.replace(name, value)
    path.write_text(text)
    return path


@pytest.mark.parametrize(("rule", "precision", "tp"), MEASURED)
def test_the_peaks_of_runs(rule: str, precision: str, tp: int, tmp_path: Path) -> None:
    loaded = load_scenario(scenario(tmp_path, rule, precision, tp))
    prediction = simulate(loaded.job, loaded.fixed_plan())
    measured = MEASURED[rule, precision, tp]
    assert prediction.peak_allocated == pytest.approx(measured, rel=0.05)
    for peak, parts in zip(prediction.peak_allocated, prediction.memory_by_rank, strict=True):
        assert sum(parts.values()) == pytest.approx(peak)


def test_the_drawn_memory_tells_old_weights_from_activations(tmp_path: Path) -> None:
    """The first of two stages keeps one version more than the last, which keeps none."""
    loaded = load_scenario(scenario(tmp_path, "pipedream", "fp32", 1))
    timeline = simulate(loaded.job, loaded.fixed_plan(), timeline=True).timeline
    assert timeline is not None
    assert timeline.meta["capacity_bytes"] == loaded.job.device.memory
    first, last = timeline.memory
    assert last.old_weights == ()
    run = TaskRun(loaded.job, loaded.fixed_plan())
    weights = float(run.program.sizes["weights"][0])
    assert max(first.old_weights) == pytest.approx(weights)
    rows = zip(first.bytes, first.activations, first.old_weights, first.buffers, strict=True)
    assert all(sum(parts) == pytest.approx(whole - first.static) for whole, *parts in rows)
    assert MemoryCurve.from_json(first.to_json()) == first


@pytest.mark.parametrize(
    ("rule", "names"),
    [
        ("pipedream", {"parameters", "optimizer"}),  # its gradients live for a backward each
        ("pipedream_2bw", {"parameters", "gradients", "optimizer"}),
    ],
)
def test_the_picture_says_what_was_predicted_of_what(
    rule: str, names: set[str], tmp_path: Path
) -> None:
    loaded = load_scenario(scenario(tmp_path, rule, "fp32", 1))
    prediction = simulate(loaded.job, loaded.fixed_plan(), timeline=True)
    timeline = prediction.timeline
    assert timeline is not None
    assert (timeline.meta["model"], timeline.meta["system"]) == ("gpt2", "1 x cpu")
    assert timeline.meta["bubble_fraction"] == prediction.bubble_fraction
    assert timeline.meta["peak_allocated_bytes"] == max(prediction.peak_allocated)
    for curve in timeline.memory:
        assert set(curve.parts) == names
        assert sum(curve.parts.values()) == curve.static <= min(curve.bytes)


def test_a_message_is_held_when_it_comes(tmp_path: Path) -> None:
    """One gradient from behind; the last stage has nobody behind it."""
    loaded = load_scenario(scenario(tmp_path, "pipedream_2bw", "fp32", 1))
    prediction = simulate(loaded.job, loaded.fixed_plan())
    assert [parts["communication"] for parts in prediction.memory_by_rank] == [BORDER, 0.0]


def test_a_backward_alone_is_highest_at_one_of_its_ends(tmp_path: Path) -> None:
    use = {"parameters": 8.0, "gradients": 8.0, "activations": 5.0, "logits": 2.0, "temporary": 4.0}
    assert sum(highest_alone(use).values()) == 8.0 + 5.0 + 2.0 + 4.0
    assert sum(highest_alone({**use, "activations": 1.0}).values()) == 8.0 + 8.0
    for rule, each in (("pipedream", True), ("pipedream_2bw", False)):
        plan = load_scenario(scenario(tmp_path, rule, "fp32", 1)).fixed_plan()
        assert updates_each(plan) == each
