"""What a prediction cites: figures that the shipped rows really give."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path

import pytest

from parsim.fitting.reports.evidence import evidence_text, gather_evidence
from parsim.scenario import load_scenario
from parsim.sim.confidence.known_errors import ANY
from parsim.validation.evidence import Evidence, cited, evidence_for, none_of
from parsim.validation.tables import JUDGED_ALONE, shipped_tables
from parsim.validation.validate import Validation, validate
from parsim.validation.validated_row import ValidatedRow

SCENARIOS = Path(__file__).parents[3] / "scenarios"
JOBS = {"bert-large-dgx-1v": True, "gpt3-175b-dgx-a100": False, "gpt2-small-cpu": False}
"""Shipped scenarios, and whether the runs of their device are in no interval's pool."""


def row(device: str, software: str, predicted: float) -> ValidatedRow:
    return ValidatedRow(
        table="t",
        row_id="r",
        device=device,
        software=software,
        predicted_step=predicted,
        measured_step=1.0,
    )


def test_figures_per_software_and_per_device() -> None:
    skipped = ValidatedRow(table="t", row_id="s", reason="no")
    rows = (row("a", "x", 1.1), row("a", "x", 0.7), row("a", "y", 1.2), skipped)
    cited = {(e.device, e.software): e for e in gather_evidence(Validation(rows=rows))}
    assert set(cited) == {("a", "x"), ("a", "y"), ("a", ANY)}
    assert cited["a", "x"].n == 2
    assert cited["a", "x"].mean_abs_error == pytest.approx(0.2)
    assert cited["a", "x"].bias == pytest.approx(-0.1)
    assert cited["a", ANY].max_abs_error == pytest.approx(0.3)


def test_mixtures_of_experts_stand_apart() -> None:
    dense = row("a", "x", 1.1)
    rows = (dense, replace(row("a", "x", 2.0), practice="x, experts"))
    cited = {(e.device, e.software): e.n for e in gather_evidence(Validation(rows=rows))}
    assert cited == {("a", "x"): 1, ("a", ANY): 1, ("a", "x, experts"): 1, ("a", "any, experts"): 1}


@cache
def everything() -> Validation:
    return validate(shipped_tables())


@pytest.mark.slow
def test_the_shipped_intervals_cover_what_they_say() -> None:
    cited = everything()
    overall = cited.coverage()
    assert 0.75 <= (overall.covered or 0.0) <= 0.88
    assert (overall.half_width or 1.0) <= 2.5 * (overall.error or 0.0)
    for table in set(cited.tables) - set(JUDGED_ALONE):  # whose runs no interval is made from
        within = cited.coverage(table)
        outside = within.n * (1.0 - (1.0 if within.covered is None else within.covered))
        # of two runs both lie inside in 64 % of all cases only: one of a small table may not
        assert outside <= max(0.4 * within.n, 1.0) + 1e-9, table


@pytest.mark.slow
def test_the_shipped_figures_are_those_of_the_shipped_rows() -> None:
    shipped = json.loads((files("parsim.validation") / "evidence.json").read_text("utf-8"))
    now = json.loads(evidence_text(everything()))
    assert len(shipped["evidence"]) == len(now["evidence"])
    for old, new in zip(shipped["evidence"], now["evidence"], strict=True):
        assert old == pytest.approx(new, abs=2e-4), "run `make reports`"


def test_a_device_without_the_software_cites_any_software() -> None:
    generic = evidence_for("h100-sxm-80gb", "generic")
    assert generic is not None
    assert generic.software == ANY
    assert "under any software" in generic.sentence()


@pytest.mark.parametrize(
    ("model", "device", "none"),
    [
        ("llama3-8b", "l40s", "of this device"),
        ("qwen3-30b-a3b", "h100-pcie-80gb", "of a mixture of experts on this device"),
        ("resnet50", "h200-sxm", "of such a network on this device"),
        ("llama3-8b", "v100-sxm-16gb", "of a transformer on this device"),
    ],
)
def test_what_there_are_no_runs_of_is_said(model: str, device: str, none: str) -> None:
    """A device that has runs of other models alone is not one without any."""
    file = SCENARIOS / "llama3-8b-dgx-h100.yaml"
    changed = {"cluster.device": device, "plan.tp": "1", "training.precision": "fp16_amp"}
    job = load_scenario(file, changed | {"model": f"{{name: {model}}}"}).job
    assert evidence_for(device, job.practice) is None
    assert none_of(job) == f"no published run {none}: expect errors of 10 % and more"
    assert cited(job).startswith(none_of(job))


def test_runs_that_judge_an_interval_alone_are_counted() -> None:
    """Among Megatron-LM's runs on H100s 22 are its own tests, which no interval is made of."""
    file = SCENARIOS / "llama3-8b-dgx-h100.yaml"
    job = load_scenario(file, {"software": "megatron-lm"}).job
    assert "the 80 % interval leaves 22 of them out" in cited(job)
    assert "leaves" not in cited(load_scenario(file, {"software": "megatron-bridge"}).job)


def test_runs_that_no_interval_is_made_of_are_cited_as_such() -> None:
    """All runs of this V100 are in the table that is judged alone; those of A100s are not."""
    told = {name: cited(load_scenario(SCENARIOS / f"{name}.yaml").job) for name in JOBS}
    assert {name: "leaves them out" in words for name, words in told.items()} == JOBS


def test_one_blind_run_has_an_error_and_no_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    job = load_scenario(SCENARIOS / "llama3-8b-dgx-h100.yaml").job
    for count, words in ((1, ": error -51.2 %"), (2, ": mean error 51.2 %, bias -51.2 %")):
        runs = Evidence(
            device=ANY, software="x", n=count, mean_abs_error=0.512, max_abs_error=0.6, bias=-0.512
        )
        monkeypatch.setattr("parsim.validation.evidence.unseen_of", lambda job, runs=runs: runs)
        assert cited(job).endswith(f"in no fit{words}")
