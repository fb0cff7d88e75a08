"""`parsim run` of pipelines without flush and of stages with replicas of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from executor.training.update_rule import Rate
from parsim.cli.app import main
from parsim.scenario import load_scenario
from parsim.schedule.replicas import StageReplicas
from parsim.sim.stages.rows import stage_rows
from tests.executor.launch import fork_runs
from tests.executor.running import MIXTURE, SCENARIO

STILL = SCENARIO.replace("seq_len: 32,", "seq_len: 32, dropout: false,")
UNTIED = STILL.replace("seq_len: 32,", "seq_len: 32, tied_embeddings: false,").replace(
    "precision: fp32", "precision: fp32, clip: 0"
)
BLOCK = "pp: 2, microbatch_size: 2, schedule: 1f1b"


def ran(
    folder: Path,
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *words: str,
) -> dict[str, Any]:
    fork_runs(monkeypatch, folder)
    path, out = folder / "tiny.yaml", folder / "out"
    path.write_text(text)
    options = ["--steps", "3", "--warmup", "1", "--verify", "--out", str(out), "--json", *words]
    assert main(["run", str(path), *options]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def steps_told(folder: Path, result: dict[str, Any]) -> list[dict[str, Any]]:
    """The records of all steps, whose losses are those of the run's document."""
    lines = (folder / "out" / "steps.jsonl").read_text().splitlines()
    steps = [json.loads(line) for line in lines]
    assert [step["step"] for step in steps] == list(range(len(steps)))
    assert [step["loss"] for step in steps] == pytest.approx(result["measured"]["loss"])
    return steps


@pytest.mark.distributed
@pytest.mark.parametrize(
    ("schedule", "precision", "versions"),
    [
        ("pipedream", "bf16_amp", [2, 1]),
        ("pipedream_2bw", "fp32", [2, 2]),
        ("pipedream_2bw", "bf16", [2, 2]),
    ],
)
def test_a_pipeline_without_flush_is_run_and_replayed_to_the_bit(
    schedule: str,
    precision: str,
    versions: list[int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    block = BLOCK.replace("1f1b", schedule)
    text = UNTIED.replace(BLOCK, block).replace("precision: fp32", f"precision: {precision}")
    result = ran(tmp_path, text, monkeypatch, capsys, "--lr-decay", "cosine")
    assert result["strategy"]["name"] == schedule
    assert result["strategy"]["replay_error"] == 0.0
    assert result["strategy"]["versions_by_rank"] == versions
    assert result["verify"]["within"]
    assert len(result["measured"]["loss"]) == 4
    assert [point["samples"] for point in result["strategy"]["curve"]] == [8.0, 16.0, 24.0, 32.0]
    assert max(map(abs, result["error"]["peak_memory_by_stage"])) <= 0.25  # a tiny model's buffers
    steps = steps_told(tmp_path, result)
    rate = Rate(decay="cosine", steps=4)  # of steps, of which PipeDream's have several updates
    assert [step["learning_rate"] for step in steps] == [rate.at(number) for number in range(4)]
    assert {step["gradient_norm"] for step in steps} == {None}


@pytest.mark.distributed
def test_replicas_that_update_late_are_run_and_replayed_to_the_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stages = "[{layers: 3, replicas: 2, late_update: true}, {layers: 1}]"
    text = UNTIED.replace(BLOCK, f"microbatch_size: 2, schedule: pipedream, stages: {stages}")
    text = text.replace("{system: cpu, nodes: 1}", "{system: cpu, nodes: 1, devices_per_node: 3}")
    result = ran(tmp_path, text, monkeypatch, capsys, "--oversubscribe")
    assert result["strategy"]["replay_error"] == 0.0
    assert result["strategy"]["versions_by_rank"] == [2, 2, 1]
    assert result["verify"]["within"]


@pytest.mark.distributed
def test_unequal_stages_train_as_one_process_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three ranks, a tied table on all of them, recomputation and clipping."""
    stages = "[{layers: 3, replicas: 2, recompute_layers: 1}, {layers: 1}]"
    text = STILL.replace(BLOCK, f"microbatch_size: 2, stages: {stages}").replace(
        "{system: cpu, nodes: 1}", "{system: cpu, nodes: 1, devices_per_node: 3}"
    )
    result = ran(tmp_path, text, monkeypatch, capsys, "--oversubscribe")
    assert result["verify"]["within"]
    assert result["strategy"]["replay_error"] is None
    assert result["measured"]["loss"][-1] < result["measured"]["loss"][0]
    assert all(step["gradient_norm"] > 0.0 for step in steps_told(tmp_path, result))


@pytest.mark.distributed
def test_stages_of_their_own_train_in_an_order_that_was_searched_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Five ranks whose order is another than 1F1B's."""
    stages = "[{layers: 1, replicas: 2}, {layers: 1, tp: 2}, {layers: 2}]"
    text = STILL.replace("seq_len: 32,", "seq_len: 32, tied_embeddings: false,")
    text = text.replace(BLOCK, f"microbatch_size: 1, schedule: auto, stages: {stages}").replace(
        "{system: cpu, nodes: 1}", "{system: cpu, nodes: 1, devices_per_node: 5}"
    )
    result = ran(tmp_path, text, monkeypatch, capsys, "--oversubscribe")
    plan = load_scenario(tmp_path / "tiny.yaml").fixed_plan()
    replicas = StageReplicas((2, 1, 1), tensor=plan.stage_tp)
    assert stage_rows(plan, replicas) != replicas.rows(plan.num_microbatches)
    assert result["verify"]["within"]
    assert result["measured"]["loss"][-1] < result["measured"]["loss"][0]


@pytest.mark.distributed
def test_a_stage_of_its_own_tensor_degree_trains_as_one_process_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each of two replicas sends its border to both ranks of the stage behind; with clipping."""
    stages = "[{layers: 3, replicas: 2}, {layers: 1, tp: 2}]"
    text = STILL.replace("seq_len: 32,", "seq_len: 32, tied_embeddings: false,")
    text = text.replace(BLOCK, f"microbatch_size: 2, stages: {stages}").replace(
        "{system: cpu, nodes: 1}", "{system: cpu, nodes: 1, devices_per_node: 4}"
    )
    result = ran(tmp_path, text, monkeypatch, capsys, "--oversubscribe")
    assert result["verify"]["within"]
    assert result["measured"]["loss"][-1] < result["measured"]["loss"][0]
    assert max(map(abs, result["error"]["peak_memory_by_stage"])) <= 0.25  # a tiny model's buffers


@pytest.mark.distributed
def test_a_mixture_is_balanced_by_the_mean_over_microbatches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = "{microbatch_size: 1, stages: [{layers: 1}, {layers: 1}]}"
    result = ran(tmp_path, MIXTURE.replace("{plan}", plan), monkeypatch, capsys)
    assert result["verify"]["within"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (STILL.replace("1f1b", "pipedream"), "training.clip=1; use clip: 0"),
        (
            STILL.replace("1f1b", "pipedream").replace(
                "precision: fp32", "precision: fp32, clip: 0"
            ),
            "use tied_embeddings: false",
        ),
        (
            UNTIED.replace("1f1b", "pipedream").replace("fp32", "fp16"),
            "use one of fp32, tf32, bf16",
        ),
        (
            UNTIED.replace("1f1b", "pipedream_2bw")
            .replace("microbatch_size: 2", "microbatch_size: 2, reduce_precision: same")
            .replace("precision: fp32", "precision: bf16"),
            "use reduce_precision=fp32",
        ),
    ],
)
def test_what_cannot_be_run_is_told(
    text: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fork_runs(monkeypatch, tmp_path)
    path = tmp_path / "tiny.yaml"
    path.write_text(text)
    assert main(["run", str(path), "--oversubscribe", "--out", str(tmp_path / "out")]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
