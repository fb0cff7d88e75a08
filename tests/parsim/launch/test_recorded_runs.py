"""`parsim calibrate --from run.json`: a recorded step corrects a calibrated file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parsim.cli.app import main
from parsim.cluster.evidence import RecordedStep
from parsim.cluster.reader import load_catalog
from parsim.scenario import Scenario, load_scenario
from parsim.sim import Prediction, simulate

DEVICE = """# Measured by parsim calibrate.
devices:
  my-cpu:
    from: cpu
    name: "one core of some CPU"
    gemm_efficiency: [0.8, "measured 2026-11-22 by parsim calibrate"]
    residuals:  # coordinates, then measured / modelled
      launch:
        - [12, 1.5]
    spreads: {clock: 0.01}
    calibrated: true
systems:
  my-cpu-node:
    from: cpu
    device: my-cpu
    calibrated: true
"""
SCENARIO = """
description: a small GPT-2 on two cores
model: {family: gpt2, num_layers: 4, hidden_size: 256, num_attention_heads: 4,
        vocab_size: 1024, seq_len: 128}
cluster: {system: cpu, nodes: 1, devices_per_node: 2}
software: executor-cpu
training: {global_batch_size: 8, precision: fp32}
plan: {dp: 2, microbatch_size: 2}
"""
KNOWN = {"forward": 1.2, "backward": 1.1, "optimizer": 1.6}


def run_of(folder: Path, *, slower: float = 1.0, host: str = "", **factors: float) -> Path:
    """A folder as `parsim run` leaves it, of a machine with known factors to the calibrated one."""
    scenario = calibrated(folder)
    step = RecordedStep(
        date="2026-01-01", model="x", plan="x", split="none", sharded=False, ranks=2, n=1,
        step=1.0, left=1.0, **{**KNOWN, **factors},
    )  # fmt: skip
    measured = predicted(scenario, (step,))
    out = folder / "run"
    out.mkdir(exist_ok=True)
    assert measured.timeline is not None
    measured.timeline.save(out / "timeline.json")
    document: dict[str, Any] = {
        "meta": {
            "ended_at": "2026-11-22T10:00:00+00:00",
            "scenario": {"file": "s.yaml", "set": ["cluster.system=cpu"], "text": SCENARIO},
            **({"host": {"device": host}} if host else {}),
        },
        "plan": measured.plan.to_json(),
        "measured": {"step_time_s": {"median": slower * measured.step_time, "n": 10}},
    }
    (out / "run.json").write_text(json.dumps(document))
    return out


def predicted(scenario: Scenario, steps: tuple[RecordedStep, ...]) -> Prediction:
    cluster = scenario.job.cluster
    device = replace(cluster.system.device, steps=steps)
    cluster = replace(cluster, system=replace(cluster.system, device=device))
    job = replace(scenario.job, cluster=cluster)
    return simulate(job, scenario.fixed_plan(), timeline=True)


def calibrated(folder: Path) -> Scenario:
    (folder / "device.yaml").write_text(DEVICE)
    (folder / "s.yaml").write_text(SCENARIO)
    pairs = {"cluster.catalog": "[device.yaml]", "cluster.system": "my-cpu-node"}
    return load_scenario(folder / "s.yaml", pairs)


def correct(folder: Path, *words: str) -> int:
    file = str(folder / "device.yaml")
    return main(["calibrate", "--from", str(folder / "run"), "--out", file, *words])


def steps(folder: Path) -> tuple[RecordedStep, ...]:
    return load_catalog([folder / "device.yaml"]).device("my-cpu").steps


def test_a_run_of_known_factors_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of(tmp_path)
    assert correct(tmp_path) == 0
    (result,) = steps(tmp_path)
    assert (result.date, result.split, result.sharded, result.ranks) == (
        "2026-11-22",
        "none",
        False,
        2,
    )
    for part, factor in KNOWN.items():
        assert getattr(result, part) == pytest.approx(factor, rel=0.02)
    assert result.left == pytest.approx(1.0, abs=0.02)
    text = capsys.readouterr()
    assert "2026-11-22 " in text.out
    assert "1 run corrects my-cpu" in text.err
    assert (tmp_path / "device.yaml").read_text().startswith("# Measured by parsim calibrate.")
    # what the machine does is now what is predicted of it, and the prediction says so
    scenario = load_scenario(
        tmp_path / "s.yaml",
        {"cluster.catalog": "[device.yaml]", "cluster.system": "my-cpu-node"},
    )
    again = simulate(scenario.job, scenario.fixed_plan())
    measured = json.loads((run / "run.json").read_text())["measured"]["step_time_s"]["median"]
    assert again.step_time == pytest.approx(measured, rel=0.02)
    assert any("run of this very plan" in note for note in again.notes)


def test_a_recorded_step_is_scaled_to_the_typical_one(tmp_path: Path) -> None:
    run_of(tmp_path, slower=1.3)
    assert correct(tmp_path) == 0
    (result,) = steps(tmp_path)
    assert result.forward == pytest.approx(1.3 * KNOWN["forward"], rel=0.02)


def test_the_same_run_again_replaces_itself(tmp_path: Path) -> None:
    run_of(tmp_path)
    assert correct(tmp_path) == 0
    first = steps(tmp_path)
    assert correct(tmp_path) == 0  # not on top of its own correction
    assert steps(tmp_path) == first


def test_a_run_of_another_day_is_kept_beside(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    assert correct(tmp_path) == 0
    document = json.loads((run / "run.json").read_text())
    document["meta"]["ended_at"] = "2026-11-23T10:00:00+00:00"
    (run / "run.json").write_text(json.dumps(document))
    assert correct(tmp_path) == 0
    assert [step.date for step in steps(tmp_path)] == ["2026-11-22", "2026-11-23"]


def test_the_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_of(tmp_path)
    assert correct(tmp_path, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema_version"] == 1
    assert document["device"] == "my-cpu"
    assert document["runs"][0]["plan"].startswith("tp1 pp1 dp2")


def without(run: Path, *path: str) -> None:
    document = json.loads((run / "run.json").read_text())
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    (run / "run.json").write_text(json.dumps(document))


def test_a_run_that_does_not_hold_its_scenario(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    without(run_of(tmp_path), "meta")
    assert correct(tmp_path) == 2
    assert "give it with --scenario FILE" in capsys.readouterr().err
    assert correct(tmp_path, "--scenario", str(tmp_path / "s.yaml")) == 0


def test_other_runs_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_of(tmp_path, host="one core of another CPU")
    assert correct(tmp_path) == 2
    assert "ran on one core of another CPU, the calibrated device is" in capsys.readouterr().err
    run_of(tmp_path, slower=40.0)
    assert correct(tmp_path) == 2
    assert "times its prediction; allowed: 0.1 to 10" in capsys.readouterr().err
    without(run, "measured", "step_time_s", "n")
    assert correct(tmp_path) == 2
    assert "is no run.json" in capsys.readouterr().err
    run_of(tmp_path)
    (run / "timeline.json").unlink()
    assert correct(tmp_path) == 2
    assert "timeline.json is missing" in capsys.readouterr().err
    assert steps(tmp_path) == ()


@pytest.mark.parametrize(
    ("block", "key", "value"),
    [
        (("measured", "step_time_s"), "median", None),
        (("measured", "step_time_s"), "median", "x"),
        (("measured", "step_time_s"), "median", 0.0),
        (("measured", "step_time_s"), "n", "x"),
        (("meta",), "scenario", []),
        (("meta", "scenario"), "set", ["plan.pp"]),
        (("meta", "scenario"), "text", 1),
        (("meta",), "ended_at", "yesterday"),
        ((), "meta", "x"),
    ],
)
def test_a_document_that_says_something_else_is_refused(
    tmp_path: Path,
    block: tuple[str, ...],
    key: str,
    value: object,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = run_of(tmp_path)
    document = json.loads((run / "run.json").read_text())
    inner = document
    for name in block:
        inner = inner[name]
    inner[key] = value
    (run / "run.json").write_text(json.dumps(document))
    assert correct(tmp_path) == 2
    assert "is no run.json of `parsim run` (" in capsys.readouterr().err


def test_a_document_cannot_name_a_file_to_write(tmp_path: Path) -> None:
    run, other = run_of(tmp_path), tmp_path / "other.yaml"
    document = json.loads((run / "run.json").read_text())
    document["meta"]["scenario"]["file"] = str(other)
    (run / "run.json").write_text(json.dumps(document))
    assert correct(tmp_path) == 0
    assert not other.exists()


def test_a_device_that_the_file_does_not_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_of(tmp_path)
    file = tmp_path / "device.yaml"
    file.write_text(file.read_text().replace("device: my-cpu", "device: cpu"))
    assert correct(tmp_path) == 2
    assert "of device cpu, which the file to correct does not have; it has my-cpu" in (
        capsys.readouterr().err
    )


def test_another_plan_than_the_scenario_s(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of(tmp_path)
    document = json.loads((run / "run.json").read_text())
    document["plan"]["tp"] = 2
    (run / "run.json").write_text(json.dumps(document))
    assert correct(tmp_path) == 2
    assert "another plan than its scenario's" in capsys.readouterr().err


def test_there_must_be_a_file_to_correct(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_of(tmp_path)
    (tmp_path / "device.yaml").unlink()
    assert correct(tmp_path) == 2
    assert "measure first" in capsys.readouterr().err
    assert correct(tmp_path, "--merge", "old.yaml") == 2
    assert "--from corrects one file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [("{}", "it has no 'measured'"), ("[1, 2]", "it is no JSON object")],
)
def test_another_document_is_refused_by_what_it_lacks(
    tmp_path: Path, text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of(tmp_path)
    (run / "run.json").write_text(text)
    assert correct(tmp_path) == 2
    assert f"run.json is no run.json of `parsim run`: {message}" in capsys.readouterr().err


def test_options_of_measuring_are_refused_beside_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_of(tmp_path)
    words = ["calibrate", "--from", "run.json", "--device", "cuda", "--oversubscribe"]
    assert main(words) == 2
    assert "--from measures nothing; leave --device, --oversubscribe out" in (
        capsys.readouterr().err
    )
