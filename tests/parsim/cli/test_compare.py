"""`parsim compare`: verdicts, documents, words and pictures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from parsim.timelines.reader import load_timeline
from parsim.timelines.timeline import Timeline
from tests.commands import SMALL, Cli
from tests.parsim.report.text.measured.small_timelines import scaled


def measured(predicted: Path, factor: float, **meta: object) -> Path:
    """A run that took so many times as long, and what else its timeline says."""
    path = predicted.with_name("measured.json")
    run = scaled(load_timeline(predicted), factor)
    replace(run, meta={**run.meta, "source": "measured", **meta}).save(path)
    return path


def test_a_timeline_agrees_with_itself(cli: Cli, predicted: Path) -> None:
    done = cli("compare", predicted, predicted, "--json", "--tolerance", 0)
    assert (done.code, done.err) == (0, "")
    assert done.document["within_tolerance"] is True
    assert {row["error"] for row in done.document["rows"]} == {0.0, None}
    assert all(row["measured"] == 0 for row in done.document["rows"] if row["error"] is None)


def test_two_predictions_are_not_called_measured(cli: Cli, predicted: Path) -> None:
    done = cli("compare", predicted, predicted)
    assert (done.code, done.err) == (0, "")
    assert "measured" not in done.out
    assert "first" in done.out


def test_the_document_of_compare_is_the_contract(cli: Cli, predicted: Path) -> None:
    document = cli("compare", predicted, measured(predicted, 1.05), "--json").document
    judged = {"unlike", "uncalibrated", "within_tolerance"}
    assert set(document) == {"schema_version", "names", "rows"} | judged
    assert (document["unlike"], document["uncalibrated"]) == (None, ["device cpu", "system cpu"])
    assert document["names"] == ["predicted", "measured"]
    assert type(document["schema_version"]) is int
    assert document["within_tolerance"] is True
    for row in document["rows"]:
        assert set(row) == {"quantity", "rank", "predicted", "measured", "unit", "error"}
        assert {type(row["predicted"]), type(row["measured"])} == {float}
        assert row["unit"] in ("s", "bytes", "fraction")
    step = {"step_time_s", "pipeline_time_s", "bubble_fraction"}
    exposed = {f"exposed_{name}_s" for name in ("communication", "tp", "dp", "p2p")}
    both = {"compute_s", "optimizer_s"} | exposed
    ranks = {"idle_s", "gradient_reduction_s", "peak_allocated_bytes"} | both
    whole = {row["quantity"] for row in document["rows"] if row["rank"] is None}
    assert whole >= step | both | {"F_mean_s", "B_mean_s"}
    assert all(name in step | both or name.endswith("_mean_s") for name in whole)
    by_rank = {
        (row["quantity"], row["rank"]) for row in document["rows"] if row["rank"] is not None
    }
    assert by_rank == {(name, rank) for name in ranks for rank in (0, 1)}


def test_outside_the_tolerance(cli: Cli, predicted: Path) -> None:
    slow = measured(predicted, 1.2)
    step = load_timeline(predicted).meta["step_time_s"]
    done = cli("compare", predicted, slow, "--json")
    assert done.code == 4
    assert done.document["within_tolerance"] is False
    assert done.document["rows"][0]["error"] == pytest.approx(1 / 1.2 - 1, rel=1e-12)
    assert done.err == (
        f"error: step_time_s: predicted {step:.3f} s, measured {1.2 * step:.3f} s, "
        "error (device cpu, system cpu: not calibrated) -16.7 %, is outside the tolerance of 10 %\n"
    )
    assert cli("compare", predicted, slow, "--tolerance", 0.17).code == 0


def test_the_other_way_round(cli: Cli, predicted: Path) -> None:
    done = cli("compare", measured(predicted, 1.2), predicted, "--json")
    assert done.code == 4
    assert done.document["rows"][0]["error"] == pytest.approx(0.2, rel=1e-12)


def test_compare_in_words(cli: Cli, predicted: Path) -> None:
    done = cli("compare", predicted, measured(predicted, 1.05))
    assert (done.code, done.err) == (0, "")
    assert "\nwhole step " in done.out
    assert done.out.splitlines()[-1].endswith(
        "error (device cpu, system cpu: not calibrated) -4.8 %, is within the tolerance of 10 %"
    )


def test_a_prediction_for_other_hardware_is_not_judged(cli: Cli, predicted: Path) -> None:
    slow = measured(predicted, 100.0, device_kind="cuda", device_names=["NVIDIA H100"])
    done = cli("compare", predicted, slow, "--json")
    assert done.code == 4
    assert done.err.startswith(
        "error: step times cannot be judged: predicted for other hardware: CPU cores (1 x cpu), "
        "run on GPUs; "
    )
    errors = {row["unit"]: row["error"] for row in done.document["rows"]}
    assert errors["s"] is errors["fraction"] is None
    assert errors["bytes"] == 0.0
    assert "-99" not in cli("compare", predicted, slow).out


def test_ranks_that_shared_cores_are_not_judged(cli: Cli, predicted: Path) -> None:
    shared = measured(predicted, 2.0, device_kind="cpu", shared_devices="4 ranks shared 2 cores")
    done = cli("compare", predicted, shared)
    assert done.code == 4
    assert "4 ranks shared 2 cores; the prediction gives each rank a device of its own" in done.err


def test_another_step_than_the_median_is_told(cli: Cli, predicted: Path) -> None:
    step = load_timeline(predicted).meta["step_time_s"]
    near = measured(predicted, 1.05, recorded_step_s=1.05 * 1.005 * step, recorded_steps=3)
    assert cli("compare", predicted, near).err == ""
    far = measured(predicted, 1.05, recorded_step_s=1.05 * 1.2 * step, recorded_steps=3)
    assert cli("compare", predicted, far).err == (
        "note: the step time is the median of all measured steps; drawn is a step +20.0 % off it, "
        "of 3 recorded ones the nearest to the median\n"
    )


@pytest.mark.parametrize(("suffix", "start"), [("png", b"\x89PNG\r\n"), ("svg", b"<?xml")])
def test_the_overlay_is_written_even_outside_the_tolerance(
    cli: Cli, predicted: Path, tmp_path: Path, suffix: str, start: bytes
) -> None:
    picture = tmp_path / "sub" / f"x.{suffix}"
    done = cli("compare", predicted, measured(predicted, 1.2), "-o", picture)
    assert done.code == 4
    assert done.err.startswith(f"picture written to {picture}\nerror: step_time_s: ")
    assert picture.read_bytes().startswith(start)


def test_notes_go_to_stderr(cli: Cli, predicted: Path, tmp_path: Path) -> None:
    whole = load_timeline(predicted)
    half = tmp_path / "half.json"
    Timeline(
        spans=tuple(whole.on(0)), meta={"step_time_s": whole.end}, memory=whole.memory[:1]
    ).save(half)
    done = cli("compare", predicted, half, "--json")
    assert done.err == "note: not compared: only the predicted timeline has rank 1\n"
    assert {row["rank"] for row in done.document["rows"]} == {None, 0}


def test_what_cannot_be_compared(cli: Cli, predicted: Path, tmp_path: Path) -> None:
    missing = tmp_path / "no.json"
    trace = tmp_path / "trace.json"
    assert cli("timeline", predicted, "-o", trace).code == 0
    assert cli("compare", predicted, missing) == (2, "", f"error: {missing}: no such file\n")
    assert cli("compare", predicted, trace) == (
        2,
        "",
        f"error: {trace}: a trace for Perfetto, not a timeline; write that with "
        f"`parsim simulate SCENARIO --timeline FILE.json`\n",
    )
    assert cli("compare", ".", predicted) == (2, "", "error: .: is a folder; give one file\n")
    assert cli("compare", SMALL, predicted) == (
        2,
        "",
        f"error: {SMALL}: a scenario, not a timeline; write its timeline with "
        f"`parsim simulate {SMALL} --timeline FILE.json`\n",
    )


def test_a_document_of_a_run_is_no_timeline(cli: Cli, predicted: Path, tmp_path: Path) -> None:
    run = tmp_path / "run.json"
    run.write_text('{"plan": {}, "measured": {}, "verify": null}')
    done = cli("compare", predicted, run)
    assert done == (
        2,
        "",
        f"error: {run}: what `parsim run` measured, not a timeline; give the timeline.json beside "
        f"it\n",
    )


def test_a_run_that_did_not_end_says_how_far_it_came(
    cli: Cli, predicted: Path, tmp_path: Path
) -> None:
    (tmp_path / "steps.jsonl").write_text("{}\n{}\n")
    for name in ("run.json", "timeline.json"):
        done = cli("compare", predicted, tmp_path / name)
        assert done.code == 2
        assert f"{name} is missing: the run did not end; {tmp_path}/steps.jsonl" in done.err
        assert "has its 2 steps" in done.err


def test_other_models_are_told(cli: Cli, predicted: Path) -> None:
    done = cli("compare", predicted, measured(predicted, 1.0, model="another"))
    assert "note: the models differ: predicted gpt2, measured another\n" in done.err


def test_a_tolerance_that_is_none(cli: Cli, predicted: Path) -> None:
    done = cli("compare", predicted, predicted, "--tolerance", "nan")
    assert done == (
        2,
        "",
        "error: tolerance=nan must be a finite share, at least 0; e.g. 0.1\n",
    )


def test_an_overlay_of_another_form(cli: Cli, predicted: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.html"
    done = cli("compare", predicted, predicted, "-o", path)
    assert done == (
        2,
        "",
        f"error: cannot draw to {path}: suffix '.html'; allowed: .png, .svg\n",
    )


def test_plans_side_by_side_as_a_table(cli: Cli, tmp_path: Path) -> None:
    """The table is that of a sweep, from which a later run goes on."""
    other, table = tmp_path / "other.yaml", tmp_path / "plans.csv"
    other.write_text(Path(SMALL).read_text(encoding="utf-8"), encoding="utf-8")
    done = cli("compare", SMALL, other, "-o", table)
    assert done.code == 0
    rows = table.read_text(encoding="utf-8").splitlines()
    assert rows[0].startswith("file,digest,plan,")
    assert len(rows) == 3
    assert "cases; they are not run again" in cli("compare", SMALL, other, "-o", table).err
