"""`parsim run` on CPU ranks: the contract's document, and what is refused before a launch."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from rich.console import Console

from executor.devices.machine import DeviceReport
from executor.measure.steps import Spread, Steps
from executor.run.document import Measured, bubble_fraction, run_document
from executor.run.results import named
from parsim.cli.app import main
from parsim.comparison.compared import slow_cores
from parsim.report.text.run import diverged, run_view
from parsim.scenario import load_scenario
from parsim.sim import simulate
from parsim.timelines.timeline import Span, Timeline
from tests.executor.launch import fork_runs
from tests.executor.running import SCENARIO


def test_spread_is_robust() -> None:
    result = Spread.of([1.0, 1.2, 1.1, 9.0, 1.0])
    assert result.to_json() == {"median": 1.1, "min": 1.0, "mad": pytest.approx(0.1), "n": 5}


def test_bubble_of_a_recorded_step() -> None:
    spans = (Span(0, "compute", "F", 0.0, 1.0, 0, 0), Span(1, "compute", "B", 1.0, 2.0, 1, 0))
    assert bubble_fraction(Timeline(spans=spans)) == 0.5


@pytest.mark.distributed
@pytest.mark.parametrize(
    "change",
    [
        "plan.pp=2",
        pytest.param("plan.pp=1", marks=pytest.mark.slow),
        "plan.pp=1 plan.cp=2 model.dropout=false",
    ],
)
def test_the_document_of_a_run(
    scenario: Path,
    change: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "out"
    if change != "plan.pp=2":
        fork_runs(monkeypatch, tmp_path)
    words = ["run", str(scenario), "--out", str(out), "--steps", "3"]
    words += [word for entry in change.split() for word in ("--set", entry)]
    words += ["--eval-every", "2", "--lr-warmup", "2", "--lr-decay", "cosine", "--clip", "0.5"]
    assert main([*words, "--warmup", "1", "--verify", "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert document == json.loads((out / "run.json").read_text())
    assert set(document) == {
        "schema_version",
        "plan",
        "device",
        "backend",
        "predicted",
        "measured",
        "error",
        "verify",
        "meta",
    }
    _check_steps(out, document)
    measured = document["measured"]
    assert measured["step_time_s"]["n"] == 3
    assert len(measured["peak_allocated_bytes"]) == 2
    assert 0.0 <= measured["bubble_fraction"] < 1.0
    assert measured["loss"][-1] < measured["loss"][0]
    assert document["verify"]["max_gradient_error"] <= 1e-6
    assert document["verify"]["max_loss_error"] <= 1e-6
    timeline = json.loads((out / "timeline.json").read_text())
    actions = [row for row in timeline["spans"] if row[2] in ("F", "B")]
    microbatches = 2 if change == "plan.pp=1" else 4
    assert len(actions) == 2 * microbatches * 2  # on each of two ranks
    rings = [row for row in timeline["spans"] if row[2] == "EXCHANGE"]
    # 4 layers, 4 micro-batches: one message forward and two backward, on each of two ranks
    assert len(rings) == ("cp" in change) * 4 * 4 * 3 * 2
    assert -1.0 < measured["recording_cost"] == timeline["meta"]["recording_cost"]
    assert main(["compare", str(out / "predicted.json"), str(out / "timeline.json")]) in (0, 4)


def _check_steps(out: Path, document: dict[str, Any]) -> None:
    """The steps as they were told one by one are those of the document."""
    steps = [json.loads(line) for line in (out / "steps.jsonl").read_text().splitlines()]
    measured, meta = document["measured"], document["meta"]
    assert [step["seconds"] for step in steps] == measured["step_seconds"]
    assert [step["loss"] for step in steps] == measured["loss"]
    assert [step["timed"] for step in steps] == [False, True, True, True]
    assert [step["tokens"] for step in steps] == [8 * 32] * 4
    assert all(step["gradient_norm"] > 0.1 and step["resident_bytes"] > 1e7 for step in steps)
    rates = [step["learning_rate"] for step in steps]
    assert rates == pytest.approx([3e-4, 6e-4, 6e-4, 6e-5])  # x = 0 at step 2, 1 at step 3
    assert all(0.0 < step["core_product_s"] < 1.0 for step in steps)
    held_out = {
        i: step["evaluation_loss"] for i, step in enumerate(steps) if "evaluation_loss" in step
    }
    assert list(held_out) == [1, 3]
    assert [{"steps": i + 1, "loss": x} for i, x in held_out.items()] == measured["evaluations"]
    assert held_out[3] < held_out[1]
    assert meta["scenario"]["set"][-1] == "training.clip=0.5"
    assert meta["scenario"]["text"] == SCENARIO
    assert meta["command"].startswith("parsim run ")
    assert {"python", "torch", "numpy"} <= set(meta["versions"])
    assert {"began_at", "ended_at", "seed", "calibration", "host", "threads", "load"} <= set(meta)


MIXTURE = {
    "model.name": "mixtral-8x7b",
    "model.positions": "0",
    "model.num_experts": "4",
    "model.experts_per_token": "2",
    "model.expert_ffn_hidden_size": "64",
    "plan.pp": "1",
    "plan.ep": "2",
}


@pytest.mark.distributed
def test_a_run_of_a_mixture_says_how_even_its_load_was(
    scenario: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "out"
    fork_runs(monkeypatch, tmp_path)
    words = ["run", str(scenario), "--out", str(out), "--steps", "2", "--warmup", "1"]
    words += [word for pair in MIXTURE.items() for word in ("--set", "=".join(pair))]
    assert main([*words, "--verify"]) == 0
    printed = capsys.readouterr().out
    document: dict[str, Any] = json.loads((out / "run.json").read_text())
    load = document["measured"]["expert_load"]
    assert 1.0 <= load["mean"] <= load["max"] <= 2.0  # all tokens on one of two ranks
    assert load["assumed"] == 1.0
    assert document["verify"]["max_gradient_error"] <= 1e-6
    assert abs(document["error"]["peak_memory"]) < 0.1  # of 3 MB; large ones are within 3 %
    told = f"got {load['mean']:.2f} times the mean of tokens"
    assert told in printed
    assert main(["compare", str(out / "predicted.json"), str(out / "timeline.json")]) in (0, 4)
    assert told in capsys.readouterr().err


def test_a_loss_that_is_no_number_is_null_and_told(scenario: Path) -> None:
    result = load_scenario(scenario, {"plan.pp": "1"})
    report = DeviceReport(kind="cpu", backend="gloo", count=2, names=("cpu",), shareable=True)
    predicted = simulate(result.job, result.fixed_plan())
    losses = (5.5, math.nan, math.inf)
    steps = Steps(seconds=(1.0,), losses=losses, restarts=0)
    timeline = Timeline(
        spans=(Span(0, "compute", "F", 0.0, 1.0, 0, 0),), meta={"recording_cost": 0.0}
    )
    document = run_document(result, report, predicted, Measured(steps, timeline, [1e6]), {})
    assert document["measured"]["loss"] == [5.5, None, None]
    json.dumps(document, allow_nan=False)
    told = "the training failed: the loss is infinite or undefined at 2 of 3 steps, first at step 1"
    assert diverged(document["measured"]["loss"]).startswith(told)
    assert f"{told} on ranks 0, 1; look" in diverged(document["measured"]["loss"], (0, 1))
    stream = io.StringIO()
    Console(file=stream, width=160).print(run_view(document, "out"))
    assert "loss 5.5000 -> undefined over 3 steps" in stream.getvalue()


@pytest.mark.parametrize(
    ("calibrated", "told"),
    [
        (None, ""),
        (4e-4, "cores took 1.05 times as long as when they were calibrated (1.00 to 1.50)"),
        (2e-4, "cores took 2.10 times as long as when they were calibrated: of that the pred"),
    ],
)
def test_a_run_says_how_fast_its_cores_were(
    scenario: Path, calibrated: float | None, told: str
) -> None:
    result = load_scenario(scenario, {"plan.pp": "1"})
    device = replace(result.job.device, core_product=calibrated)
    system = replace(result.job.system, device=device)
    job = replace(result.job, cluster=replace(result.job.cluster, system=system))
    result = replace(result, job=job)
    report = DeviceReport(kind="cpu", backend="gloo", count=2, names=("cpu",), shareable=True)
    predicted = simulate(result.job, result.fixed_plan())
    steps = Steps(seconds=(1.0,) * 3, losses=(5.5,) * 3, core_products=(4e-4, 4.2e-4, 6e-4))
    timeline = Timeline(
        spans=(Span(0, "compute", "F", 0.0, 1.0, 0, 0),), meta={"recording_cost": 0.0}
    )
    measured = Measured(steps, timeline, [1e6])
    document = run_document(result, report, predicted, measured, {})
    stream = io.StringIO()
    Console(file=stream, width=160).print(run_view(document, "out"))
    assert told in stream.getvalue()
    meta = named(timeline, result, document, steps, {}).meta
    if calibrated is None:
        assert "core_pace" not in document["measured"] | meta
        return
    assert meta["core_pace"] == document["measured"]["core_pace"]["median"]
    slow = slow_cores(meta["core_pace"])
    assert bool(slow) == (calibrated < 4e-4)
    assert slow in stream.getvalue()


def test_a_run_whose_loss_is_no_number_ends_with_4(
    scenario: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    document = {"verify": None, "measured": {"loss": [5.5, None]}}
    monkeypatch.setattr("parsim.launch.launch.run_plan", lambda *_: document)
    assert main(["run", str(scenario), "--json"]) == 4
    printed = capsys.readouterr()
    assert json.loads(printed.out) == document
    assert "error: the training failed: the loss is infinite or undefined at 1 of 2" in printed.err


@pytest.mark.distributed
@pytest.mark.parametrize(("change", "ranks"), [("plan.pp=1", "s 0, 1"), ("plan.pp=2", " 1")])
def test_a_training_that_runs_away_is_told_with_rank_and_step(
    scenario: Path,
    change: str,
    ranks: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fork_runs(monkeypatch, tmp_path)
    out = tmp_path / "out"
    words = ["run", str(scenario), "--set", change, "--out", str(out), "--steps", "3"]
    words += ["--learning-rate", "1e30"]
    assert main([*words, "--warmup", "1", "--json"]) == 4
    printed = capsys.readouterr()
    losses = json.loads((out / "run.json").read_text())["measured"]["loss"]
    assert "NaN" not in (out / "run.json").read_text()
    assert json.loads(printed.out)["measured"]["loss"] == losses
    first = losses.index(None)
    assert first > 0
    told = f"at {losses.count(None)} of 4 steps, first at step {first} on rank{ranks}; look"
    assert told in printed.err


@pytest.mark.slow
def test_more_ranks_than_devices(
    scenario: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    catalog = tmp_path / "wide.yaml"
    catalog.write_text("systems:\n  wide: {from: cpu, devices_per_node: 4096}\n")
    words = ["--set", "cluster.system=wide", "--set", f"cluster.catalog=[{catalog}]"]
    words += ["--set", "training.global_batch_size=4096", "--set", "plan.pp=1"]
    assert main(["run", str(scenario), *words, "--set", "plan.microbatch_size=1"]) == 2
    told = capsys.readouterr().err
    assert "error: world size 4096 (pp=1 x dp=4096 x cp=1 x tp=1) is more than the " in told
    assert "Traceback" not in told


def test_without_torch(
    scenario: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("parsim.launch.ranks.find_spec", lambda name: None)
    assert main(["run", str(scenario)]) == 2
    assert capsys.readouterr().err.endswith(
        "error: running a plan needs torch, which is not installed; "
        "install it with: pip install 'torch>=2.11'\n"
    )
