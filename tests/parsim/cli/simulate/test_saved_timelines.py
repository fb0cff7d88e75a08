"""Timelines that `parsim simulate` saves, and what `parsim timeline` draws of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from parsim.timelines.reader import load_timeline
from parsim.timelines.timeline import Timeline
from tests.commands import GPT3, SMALL, Cli, settings


def test_simulate_saves_the_timeline(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "new" / "t.json"
    done, plain = (
        cli("simulate", SMALL, "--json", "--timeline", path),
        cli("simulate", SMALL, "--json"),
    )
    assert done == (0, plain.out, f"timeline written to {path}\n")
    saved = load_timeline(path)
    assert saved.meta["step_time_s"] == plain.document["step_time_s"]
    assert saved.ranks == (0, 1)
    assert {span.kind for span in saved.spans} >= {"F", "B", "OPTIMIZER"}


def test_a_saved_timeline_has_a_suffix(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "t.png"
    assert cli("simulate", SMALL, "--timeline", path) == (
        2,
        "",
        f"error: {path}: a timeline is saved as .json; to draw it use "
        f"`parsim timeline {SMALL} -o {path}`\n",
    )


def test_a_timeline_is_not_saved_over_its_scenario(cli: Cli, tmp_path: Path) -> None:
    best = tmp_path / "s.json"
    best.write_text(Path(SMALL).read_text(encoding="utf-8"), encoding="utf-8")
    message = f"error: {best}: would overwrite the input; give another file\n"
    assert cli("simulate", best, "--timeline", best) == (2, "", message)
    assert cli("timeline", best, "-o", best) == (2, "", message)
    assert best.read_text(encoding="utf-8") == Path(SMALL).read_text(encoding="utf-8")


def test_a_timeline_that_cannot_be_written(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "t.json"
    assert cli("simulate", SMALL, "--timeline", path) == (
        2,
        "",
        f"error: {path}: cannot write: {tmp_path}/file is not a folder\n",
    )


def test_a_plan_that_does_not_fit_is_saved_and_refused(cli: Cli, tmp_path: Path) -> None:
    pairs = ["tp=1", "pp=1", "dp=1024", "schedule=1f1b", "v=1", "sequence_parallel=false"]
    words = settings(*(f"plan.{pair}" for pair in pairs), "training.global_batch_size=1024")
    done = cli("simulate", GPT3, "--timeline", tmp_path / "t.json", *words)
    assert done.code == 3
    assert load_timeline(tmp_path / "t.json").ranks == (0,)


@pytest.mark.parametrize("suffix", ["png", "svg", "json"])
def test_a_saved_timeline_is_drawn_like_its_scenario(
    cli: Cli, predicted: Path, tmp_path: Path, suffix: str
) -> None:
    first, other = tmp_path / f"one.{suffix}", tmp_path / f"other.{suffix}"
    options = ["--memory", "--critical"] if suffix != "json" else []
    done = cli("timeline", predicted, "-o", first, *options)
    assert done == (0, "", f"timeline written to {first}\n")
    assert cli("timeline", SMALL, "-o", other, *options).code == 0
    assert first.read_bytes() == other.read_bytes()


def test_a_saved_timeline_as_html(cli: Cli, predicted: Path, tmp_path: Path) -> None:
    assert cli("timeline", predicted, "-o", tmp_path / "x.html").code == 0
    text = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert "124,439,808 parameters" in text
    assert "of the pipeline phase" in text


@pytest.mark.parametrize("suffix", ["png", "html", "json"])
def test_a_measured_timeline_need_not_say_what_it_is(
    cli: Cli, predicted: Path, tmp_path: Path, suffix: str
) -> None:
    bare = tmp_path / "bare.json"
    Timeline(spans=load_timeline(predicted).spans).save(bare)
    assert cli("timeline", bare, "-o", tmp_path / f"x.{suffix}").code == 0


def test_a_saved_timeline_has_no_fields(cli: Cli, predicted: Path, tmp_path: Path) -> None:
    done = cli("timeline", predicted, "-o", tmp_path / "x.png", *settings("plan.tp=2"))
    assert done == (
        2,
        "",
        f"error: {predicted}: a saved timeline has no fields to --set; leave --set out\n",
    )


def test_a_trace_is_not_drawn(cli: Cli, predicted: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    assert cli("timeline", predicted, "-o", trace).code == 0
    done = cli("timeline", trace, "-o", tmp_path / "x.png")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: {trace}: a trace for Perfetto, not a timeline; ")


def test_a_saved_timeline_that_is_cut_short(cli: Cli, predicted: Path, tmp_path: Path) -> None:
    document = json.loads(predicted.read_text(encoding="utf-8"))
    document["spans"][3] = []
    predicted.write_text(json.dumps(document), encoding="utf-8")
    done = cli("timeline", predicted, "-o", tmp_path / "x.png")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: {predicted}: spans[3] must be a list of 8 values (rank, ")
