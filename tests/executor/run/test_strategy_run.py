"""`parsim run` of a plan with a strategy: the document, the replay, what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from executor.run.strategy_document import Evaluated, Measured
from executor.strategies.replays.log import Applied, Ended
from executor.training.update_rule import Rate
from parsim.cli.app import main
from tests.commands import ROOT
from tests.executor.launch import fork_runs
from tests.executor.running import MIXTURE, SCENARIO

STRATEGY = SCENARIO.replace("seq_len: 32,", "seq_len: 32, dropout: false,").replace(
    "pp: 2, microbatch_size: 2, schedule: 1f1b", "{plan}"
)


DEVICE = """
devices:
  my-cpu:
    from: cpu
    core_product: [1us, "quicker than any core"]
systems:
  my-cpu-node:
    from: cpu
    device: my-cpu
"""


def scenario(folder: Path, strategy: str) -> Path:
    path = folder / "tiny.yaml"
    path.write_text(STRATEGY.replace("{plan}", f"microbatch_size: 2, strategy: {strategy}"))
    return path


@pytest.mark.distributed
@pytest.mark.parametrize(
    "strategy",
    [
        "asynchronous_server",
        "{name: local_sgd, every: 2}",
        "asynchronous_gossip",
        "data_parallel",
    ],
)
def test_a_strategy_is_run_and_verified(
    strategy: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With the options of a training: they mean what they mean for DDP."""
    fork_runs(monkeypatch, tmp_path)
    path, out = scenario(tmp_path, strategy), tmp_path / "out"
    words = ["--steps", "4", "--warmup", "1", "--verify", "--out", str(out), "--json"]
    words += ["--clip", "0.01", "--lr-warmup", "2", "--lr-decay", "cosine", "--eval-every", "2"]
    device = tmp_path / "device.yaml"
    device.write_text(DEVICE)
    assert main(["run", str(path), *words, "--device", str(device)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == json.loads((out / "run.json").read_text())
    assert document["verify"]["within"]
    assert len(document["measured"]["loss"]) == 5
    workers = 1 if strategy == "data_parallel" else 2
    assert document["strategy"]["workers"] == workers
    samples = [point["samples"] for point in document["strategy"]["curve"]]
    assert samples == [8.0 / workers * (number + 1) for number in range(5 * workers)]
    if "asynchronous" in strategy:
        assert document["strategy"]["replay_error"] == 0.0
        assert len(document["strategy"]["ages_updates"]) == 10
    _check_training(document, out)
    pace = document["measured"]["core_pace"]
    assert 1.0 < pace["min"] <= pace["median"] <= pace["max"]


@pytest.mark.distributed
@pytest.mark.parametrize("strategy", ["parameter_server", "data_parallel"])
def test_a_mixture_is_balanced_by_the_mean_over_microbatches(
    strategy: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The workers' copies of a single process balance their own tokens too."""
    fork_runs(monkeypatch, tmp_path)
    path, out = tmp_path / "tiny.yaml", tmp_path / "out"
    plan = f"{{dp: 2, microbatch_size: 2, strategy: {strategy}}}"
    path.write_text(MIXTURE.replace("{plan}", plan))
    words = ["--steps", "2", "--warmup", "1", "--verify", "--out", str(out), "--json"]
    assert main(["run", str(path), *words]) == 0
    assert json.loads(capsys.readouterr().out)["verify"]["within"]


@pytest.mark.distributed
def test_ranks_begin_to_count_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rank 0 is late, since it predicts the run first; the rounds are timed although they are few.

    Both end a round only when both have begun it: by one clock some time is between them.
    """
    fork_runs(monkeypatch, tmp_path)
    path, out = scenario(tmp_path, "{name: local_sgd, every: 1}"), tmp_path / "out"
    words = ["--steps", "2", "--warmup", "1", "--out", str(out), "--json"]
    assert main(["run", str(path), *words]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["measured"]["samples_per_s"] is not None


@pytest.mark.distributed
def test_a_layout_of_a_transformer_is_run_as_its_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fork_runs(monkeypatch, tmp_path)
    layout = "{name: layout, mesh: {m: 2}, layout: {heads: m, ffn: m, vocab: m}}"
    path, out = scenario(tmp_path, layout), tmp_path / "out"
    words = ["--steps", "2", "--warmup", "1", "--verify", "--out", str(out), "--json"]
    assert main(["run", str(path), *words]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["verify"]["within"]
    plan = document["plan"]  # the samples of both devices together
    assert (plan["tp"], plan["dp"], plan["microbatch_size"]) == (2, 1, 4)


@pytest.mark.distributed
def test_heads_on_ranks_apart_are_run_and_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fork_runs(monkeypatch, tmp_path)
    path, out = ROOT / "scenarios" / "multi-task-small-cpu.yaml", tmp_path / "out"
    words = ["--steps", "3", "--warmup", "1", "--verify", "--out", str(out), "--json"]
    assert main(["run", str(path), *words]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["verify"]["within"]
    assert len(document["measured"]["loss"]) == 4
    assert main(["run", str(path), *words, "--eval-every", "2"]) == 2
    assert "no rank has the whole model" in capsys.readouterr().err


def _check_training(document: dict[str, Any], out: Path) -> None:
    """Steps in their log, the rate's schedule, evaluations, and what the run was."""
    steps = [json.loads(line) for line in (out / "steps.jsonl").read_text().splitlines()]
    assert [step["step"] for step in steps] == list(range(5))
    assert all(step["gradient_norm"] > 0.01 and step["worker"] == 0 for step in steps)
    rate = Rate(warmup=2, decay="cosine", steps=5)
    assert [step["learning_rate"] for step in steps] == [rate.at(step) for step in range(5)]
    evaluations = document["measured"]["evaluations"]
    assert [evaluation["steps"] for evaluation in evaluations] == [2, 4]
    assert all(evaluation["loss"] > 0 and evaluation["samples"] > 0 for evaluation in evaluations)
    assert document["meta"]["versions"]["torch"]
    assert (out / "predicted.json").exists()
    assert (out / "loss.png").exists()


def test_a_rate_is_that_of_all_workers_between_the_warm_up_and_the_first_end() -> None:
    """One worker has a round a second, the other one every two: 3 of 2 workers' in 2 seconds."""
    fast = [Ended(number, number + 1.0, 1.0, 0.0) for number in range(5)]
    slow = [Ended(number, 2.0 * (number + 1), 3.0, 0.0) for number in range(5)]
    measured = Measured(
        rounds=[fast, slow], warmup=1, samples=(4, 4), evaluations=[Evaluated(2, 2.0, 0.5)]
    )
    assert measured.losses == [2.0] * 5
    assert measured.step_time == pytest.approx(4 / 3)
    assert measured.seconds == [2.0] * 4
    assert [point["samples"] for point in measured.curve()][:2] == [4.0, 8.0]
    assert measured.evaluated() == [{"steps": 2, "seconds": 2.0, "samples": 16.0, "loss": 0.5}]
    late = replace(measured, applied=[Applied(0, 0, 0), Applied(1, 0, 0)])
    assert late.evaluated() == [{"steps": 2, "seconds": 2.0, "samples": 12.0, "loss": 0.5}]


def test_losses_are_means_over_samples() -> None:
    """One worker has 7 of a round's 8 samples: the loss and the curve count it so often."""
    large = [Ended(number, 2.0 * number + 2.0, 1.0, 0.0) for number in range(2)]
    small = [Ended(number, 2.0 * number + 1.0, 5.0, 0.0) for number in range(2)]
    measured = Measured(rounds=[large, small], warmup=0, samples=(7, 1))
    assert measured.losses == [1.5, 1.5]
    assert [point["samples"] for point in measured.curve()] == [1.0, 8.0, 9.0, 16.0]


@pytest.mark.distributed
def test_workers_of_unequal_batches_tell_the_loss_of_all_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every loss, of training and evaluations, is that of DDP with the same batches."""
    fork_runs(monkeypatch, tmp_path)
    losses = []
    for number, strategy in enumerate(["ddp", "parameter_server"]):
        path, out = tmp_path / "tiny.yaml", tmp_path / str(number)
        plan = f"dp: 2, microbatch_size: 1, replica_microbatches: [7, 1], strategy: {strategy}"
        path.write_text(STRATEGY.replace("{plan}", plan))
        words = ["--steps", "2", "--warmup", "0", "--out", str(out), "--json"]
        assert main(["run", str(path), *words, "--eval-every", "1"]) == 0
        measured = json.loads(capsys.readouterr().out)["measured"]
        evaluations = [evaluation["loss"] for evaluation in measured["evaluations"]]
        losses.append([*measured["loss"], *evaluations])
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)


def test_dropped_gradients_are_no_progress() -> None:
    """Two of three workers count in each of two steps: a third of the gradients is dropped."""
    rounds = [[Ended(step, step + 1.0, 1.0, 0.0) for step in range(2)] for _ in range(3)]
    applied = [Applied(worker, step, step) for step in range(2) for worker in range(2)]
    measured = Measured(rounds=rounds, applied=applied, warmup=0, samples=(2, 2, 2))
    assert measured.dropped == pytest.approx(1 / 3)
    assert measured.step_time == pytest.approx(1.5)


def test_options_without_meaning_for_a_strategy_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fork_runs(monkeypatch, tmp_path)
    words = [str(scenario(tmp_path, "gossip")), "--checkpoint-every", "2", "--out", str(tmp_path)]
    assert main(["run", *words]) == 2
    assert "--checkpoint-every cannot go with strategy gossip" in capsys.readouterr().err
