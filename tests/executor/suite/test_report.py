"""The suite's report from what lies in its folder: errors, ranking, what was left out and why."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.suite.machine import Machine
from executor.suite.pictures import draw_all
from executor.suite.report import report_document, write_report
from executor.suite.results import Pair, Result, covered, read, spearman, summary
from parsim.errors import InputError
from parsim.timelines.timeline import Span, Timeline
from parsim.units import MIB

SHARED = "ranks share one GPU: correctness is real, speed is not that of N GPUs; NCCL"
MACHINE = Machine(
    kind="cpu",
    backend="gloo",
    count=2,
    names=("cpu",),
    torch="2.13.0",
    cuda="",
    nccl=(),
    python="3.12.3",
    load=0.25,
)
CALIBRATION = {
    "device": {"id": "my-cpu", "from": "cpu", "name": "one core of a CPU", "reference_drift": 0.01},
    "system": None,
    "residuals": {"kernels": {"gemm": {"n": 9, "median": 0.02, "p90": 0.05, "max": 0.08}}},
}


def result(predicted: float, measured: float, **changes: Any) -> Result:
    fields: dict[str, Any] = {
        "name": "case",
        "family": "one rank",
        "model": "gpt",
        "plan": "tp1",
        "precision": "fp32",
        "step_time": Pair(predicted=predicted, measured=measured),
        "least": measured,
        "mad": 0.0,
        "steps": 5,
        "peak": Pair(predicted=1.0, measured=1.0),
        "kinds": {},
        "tokens_per_s": 1.0,
        "mfu": 0.5,
        "loss": (5.0, 4.0),
    }
    return Result(**{**fields, **changes})


def timeline(scale: float) -> Timeline:
    spans = (Span(0, "compute", "F", 0.0, scale, 0, 0), Span(0, "compute", "B", scale, 3 * scale))
    return Timeline(spans=(*spans, Span(0, "compute", "OPTIMIZER", 3 * scale, 4 * scale)))


def write_case(out: Path, name: str, seconds: float) -> dict[str, Any]:
    """A finished case whose step took `seconds`; its prediction, which said 1 s."""
    folder = out / name
    folder.mkdir(parents=True)
    measured = {
        "step_time_s": {"median": seconds, "min": 0.9 * seconds, "mad": 0.05 * seconds, "n": 7},
        "peak_allocated_bytes": [90 * MIB, 100 * MIB],
        "tokens_per_s": 1e3 / seconds,
        "mfu": 0.4,
        "loss": [6.0, 5.0, 4.5],
    }
    document = {"plan": {"precision": "fp32"}, "measured": measured}
    (folder / "run.json").write_text(json.dumps(document))
    timeline(0.25 * seconds).save(folder / "timeline.json")
    timeline(0.25).save(folder / "predicted.json")
    return {
        "plan": "tp1 pp1",
        "model": "gpt-7m",
        "parameters": 7e6,
        "step_time_s": 1.0,
        "peak_allocated_bytes": [103 * MIB],
        "kinds_s": {"forward": 0.25, "backward": 0.5, "optimizer": 0.25},
    }


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A suite of four cases: two done, one done with shared ranks, one without time."""
    done = {"status": "done", "reason": "", "began_at": "2026-11-21T12:00:05+00:00"}
    cases: dict[str, Any] = {
        "fast": {"family": "one rank", "label": "", **done},
        "slow": {"family": "pipeline", "label": "", **done},
        "shared": {"family": "pipeline", "label": SHARED, **done},
        "late": {"family": "pipeline", "label": "", "status": "skipped", "reason": "no time: x"},
        "broken": {"family": "p", "label": "", "status": "failed", "reason": "rank 1 failed"},
    }
    seconds = {"fast": 0.8, "slow": 1.25, "shared": 10.0}
    predicted = {name: write_case(tmp_path, name, s) for name, s in seconds.items()}
    progress = {
        "began_at": "2026-11-21T12:00:00+00:00",
        "machine": asdict(MACHINE),
        "warmup": 3,
        "seconds": 99.0,
        "cases": cases,
    }
    predictions = {"written_at": "2026-11-21T12:00:04+00:00", "cases": predicted}
    documents = {"progress": progress, "predictions": predictions, "calibration": CALIBRATION}
    for name, document in documents.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    return tmp_path


def test_errors_are_signed_and_shared_ranks_do_not_count(out: Path) -> None:
    document = report_document(read(out))
    json.dumps(document, allow_nan=False)
    step = document["summary"]["step_time"]
    # 1 / 0.8 - 1 = +25 %; 1 / 1.25 - 1 = -20 %
    assert step == {
        "n": 2,
        "median_abs": pytest.approx(0.225),
        "max_abs": pytest.approx(0.25),
        "bias": pytest.approx(0.025),
    }
    assert document["summary"]["peak_memory"]["max_abs"] == pytest.approx(0.03)
    assert document["summary"]["backward"]["bias"] == pytest.approx(0.025)
    assert [entry["counted"] for entry in document["cases"]] == [True, True, False]
    assert document["cases"][0]["step_time_s"]["error_of_min"] == pytest.approx(1 / 0.72 - 1)


def test_what_was_left_out_is_listed(out: Path) -> None:
    document = report_document(read(out))
    assert document["skipped"] == {"late": "no time: x"}
    assert document["failed"] == {"broken": "rank 1 failed"}
    write_report(out, read(out))
    text = (out / "report.md").read_text()
    assert "- late skipped: no time: x" in text
    assert "- broken failed: rank 1 failed" in text
    assert SHARED in text


def test_conditions(out: Path) -> None:
    write_report(out, read(out), ["scatter.png"])
    text = (out / "report.md").read_text()
    for fact in (
        "- date: 2026-11-21",
        "- software: torch 2.13.0, Python 3.12.3",
        "- threads: 1 a rank",
        "- quiet: yes, the reference product moved by 1.0 % while calibrating; load 0.25 before",
        "- suite: 99 s in all",
        "written\nbefore the first case ran",
        "5.0 % (noisy)",
        "](scatter.png)",
        "| gemm | 9 | 2.0 % | 5.0 % | 8.0 % |",
    ):
        assert fact in text
    assert str(out) not in text


def test_a_prediction_after_the_fact_is_told(out: Path) -> None:
    assert report_document(read(out))["predicted_before_running"]
    later = json.loads((out / "predictions.json").read_text())
    later["written_at"] = "2026-11-21T12:00:06+00:00"
    (out / "predictions.json").write_text(json.dumps(later))
    assert not report_document(read(out))["predicted_before_running"]
    write_report(out, read(out))
    assert "written\nNOT before the first case ran" in (out / "report.md").read_text()


def test_pictures(out: Path) -> None:
    names = draw_all(out, read(out))
    # of the family of "slow" and "shared" the one with the longer step is drawn
    assert names == ["scatter.png", "errors.png", "overlay-fast.png", "overlay-shared.png"]
    assert all((out / name).read_bytes().startswith(b"\x89PNG") for name in names)


def test_no_case_has_run(out: Path) -> None:
    progress = json.loads((out / "progress.json").read_text())
    progress["cases"] = {"late": progress["cases"]["late"]}
    (out / "progress.json").write_text(json.dumps(progress))
    outcome = read(out)
    write_report(out, outcome, draw_all(out, outcome))
    assert "No case has run." in (out / "report.md").read_text()


def test_a_folder_that_is_no_suite(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"progress\.json: no such file; run the suite again"):
        read(tmp_path)


def test_nothing_measured_has_no_error() -> None:
    assert Pair(predicted=1.0, measured=0.0).error is None
    assert summary([result(1.0, 0.0, least=1.0)], lambda case: case.step_time) is None


def test_spearman_by_hand() -> None:
    # ranks 0 1 2 3 against 0 1 3 2: 1 - 6 x (1 + 1) / (4 x 15) = 0.8
    cases = [result(p, m) for p, m in ((1.0, 2.0), (2.0, 3.0), (3.0, 9.0), (4.0, 5.0))]
    assert spearman(cases) == pytest.approx(0.8)
    # a tie takes the mean of its ranks: 0 1.5 1.5 3 against 0 1 2 3; 4.5 / sqrt(4.5 x 5)
    tied = [result(p, m) for p, m in ((1.0, 1.0), (2.0, 2.0), (2.0, 3.0), (4.0, 4.0))]
    assert spearman(tied) == pytest.approx(4.5 / (4.5 * 5.0) ** 0.5)
    assert spearman(cases[:2]) is None
    assert spearman([result(1.0, m) for m in (1.0, 2.0, 3.0)]) == 0.0  # predicts no order
    assert spearman([result(p, 1.0) for p in (1.0, 2.0, 3.0)]) is None  # there is none


@given(st.lists(st.floats(0.001, 10.0), min_size=3, max_size=12, unique=True))
def test_a_monotone_prediction_ranks_right(seconds: list[float]) -> None:
    assert spearman([result(3.0 * s, s) for s in seconds]) == pytest.approx(1.0)
    assert spearman([result(11.0 - s, s) for s in seconds]) == pytest.approx(-1.0)


def test_intervals_that_hold_their_steps() -> None:
    inside, outside = (result(1.0, measured, interval=(0.9, 1.1)) for measured in (1.05, 1.2))
    unsaid = result(1.0, 3.0)
    assert (inside.inside, outside.inside, unsaid.inside) == (True, False, None)
    assert covered([inside, outside, unsaid]) == {"inside": 1, "n": 2}
    assert covered([unsaid]) is None


def test_the_report_counts_its_intervals(out: Path) -> None:
    predictions = json.loads((out / "predictions.json").read_text())
    for case in predictions["cases"].values():
        case["step_time_interval_s"] = [0.75, 1.1]
    (out / "predictions.json").write_text(json.dumps(predictions))
    outcome = read(out)
    write_report(out, outcome)
    text = (out / "report.md").read_text()
    assert "80 % intervals hold 1 of 2 measured steps." in text
    assert "-20.0 % (outside)" in text
    assert report_document(outcome)["cases"][0]["step_time_s"]["interval"] == [0.75, 1.1]
