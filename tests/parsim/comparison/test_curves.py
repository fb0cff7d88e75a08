"""Losses of several runs against seconds and samples: who was first at what all reached."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parsim.cli.app import main
from parsim.comparison.curves import compare_curves
from parsim.comparison.run_curves import curve_of
from parsim.errors import InputError
from parsim.report.picture.loss import draw_curves

PLAN = {"dp": 2, "microbatch_size": 2, "num_microbatches": 1}


def ddp(losses: list[float | None], median: float | None = 0.5) -> dict[str, Any]:
    measured = {"loss": losses, "step_time_s": {"median": median}}
    return {"plan": PLAN, "measured": measured, "verify": None}


def server(losses: list[float]) -> dict[str, Any]:
    curve = [
        {"seconds": 0.1 * (i + 1), "samples": 2.0 * (i + 1), "loss": loss}
        for i, loss in enumerate(losses)
    ]
    plan = {**PLAN, "strategy": {"name": "asynchronous_server"}}
    document = {**ddp([], None), "plan": plan, "strategy": {"curve": curve}}
    document["measured"]["samples_per_s"] = 25.0
    return document


def saved(folder: Path, name: str, document: object) -> Path:
    path = folder / name / "run.json"
    path.parent.mkdir()
    path.write_text(json.dumps(document))
    return path


def test_a_step_of_ddp_takes_its_median_and_the_whole_batch() -> None:
    curve = curve_of(ddp([3.0, 2.0, None, 1.0]), "ddp")
    assert curve.seconds == (0.5, 1.0, 2.0)
    assert curve.samples == (4.0, 8.0, 16.0)
    assert curve.loss == (3.0, 2.0, 1.0)
    assert curve.rate == 8.0


def test_rounds_of_a_strategy_are_averaged_over_the_workers() -> None:
    curve = curve_of(server([4.0, 2.0, 3.0, 1.0]), "server")
    assert curve.loss == (4.0, 3.0, 2.5, 2.0)
    assert curve.samples_to(2.5) == 6.0
    assert curve.seconds_to(1.0) is None


def test_samples_a_second_are_what_the_run_says(tmp_path: Path) -> None:
    """Warm-up counts for the curve, but not for the rate: 4 samples in the median step of 0.5 s."""
    warm = ddp([3.0, 2.0, 1.0])
    warm["measured"]["step_seconds"] = [9.0, 0.5, 0.5]
    curve = curve_of(warm, "ddp")
    assert (curve.seconds[-1], curve.rate) == (10.0, 8.0)
    plain = server([4.0, 2.0])
    assert curve_of(plain, "server").rate == 25.0
    plain["measured"]["samples_per_s"] = None
    assert curve_of(plain, "server").rate is None
    paths = [saved(tmp_path, "a", warm), saved(tmp_path, "b", plain)]
    assert [row["samples_per_s"] for row in compare_curves(paths).records()] == [8.0, None]
    assert "asynchronous_server" in str(compare_curves(paths))


def test_who_is_first_at_the_loss_that_all_reached(tmp_path: Path) -> None:
    paths = [saved(tmp_path, "a", ddp([3.0, 2.0, 1.5])), saved(tmp_path, "b", server([3, 1]))]
    compared = compare_curves(paths)
    assert compared.reached == 2.0
    assert [row["seconds_to_it_s"] for row in compared.records()] == [1.0, 0.2]
    assert compared.headline.startswith("asynchronous_server is first at a loss of 2.0000")
    assert "asynchronous_server" in str(compared)


def test_evaluations_are_compared_where_all_runs_have_them(tmp_path: Path) -> None:
    """DDP's losses stand at the ends of their steps, which took 1, 2, 3 and 4 seconds."""
    plain, other = ddp([4.0, 3.0, 2.0, 1.0]), server([3.0, 1.0])
    plain["measured"]["step_seconds"] = [1.0, 2.0, 3.0, 4.0]
    plain["measured"]["evaluations"] = [{"steps": 2, "loss": 3.5}, {"steps": 4, "loss": 2.5}]
    assert not compare_curves([saved(tmp_path, "a", plain), saved(tmp_path, "b", other)]).evaluated
    other["measured"]["evaluations"] = [
        {"steps": 1, "loss": 3.0, "seconds": 0.2, "samples": 4.0},
        {"steps": 2, "loss": 2.0, "seconds": 0.4, "samples": 8.0},
    ]
    paths = [saved(tmp_path, name, run) for name, run in (("c", plain), ("d", other))]
    compared = compare_curves(paths)
    assert compared.evaluated
    assert compared.curves[0].seconds == (3.0, 10.0)
    assert compared.curves[0].samples == (8.0, 16.0)
    assert [row["seconds_to_it_s"] for row in compared.records()] == [10.0, 0.4]


def test_runs_of_one_strategy_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    paths = [saved(tmp_path, name, ddp([3.0, 2.0])) for name in ("a", "b")]
    assert [curve.name for curve in compare_curves(paths).curves] == ["ddp (a)", "ddp (b)"]


def test_what_has_no_losses_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no loss that is a number"):
        curve_of(ddp([1.0], None), "ddp")
    other = tmp_path / "timeline.json"
    other.write_text("{}")
    with pytest.raises(InputError, match=r"is no run\.json"):
        compare_curves([saved(tmp_path, "a", ddp([1.0])), other])


def test_the_command_prints_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(saved(tmp_path, n, ddp([3.0, 2.0, 1.0]))) for n in ("a", "b", "c")]
    picture = tmp_path / "curves.png"
    assert main(["compare", *paths, "-o", str(picture)]) == 0
    assert "is first at a loss of 1.0000" in capsys.readouterr().out
    assert picture.stat().st_size > 5_000
    assert main(["compare", *paths, "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [run["run"] for run in runs] == ["ddp (a)", "ddp (b)", "ddp (c)"]


def test_losses_of_different_models_are_no_measure_of_one_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def of(name: str, *options: str) -> dict[str, Any]:
        scenario = {"text": f"model: {{name: {name}}}", "set": list(options)}
        return {**ddp([2.0, 1.0]), "meta": {"scenario": scenario}}

    documents = {
        "a": of("gpt2"),
        "b": of("gpt2", "plan.pp=2"),
        "c": of("bert-large"),
        "d": ddp([1]),
    }
    paths = [str(saved(tmp_path, name, document)) for name, document in documents.items()]
    assert main(["compare", *paths[:2], paths[3]]) == 0
    assert capsys.readouterr().err == ""
    assert main(["compare", *paths]) == 0
    assert "ddp (a) and ddp (c) are runs of different models" in capsys.readouterr().err
    sized = saved(tmp_path, "e", of("gpt2", "model.num_layers=2"))
    assert compare_curves([Path(paths[0]), sized]).notes


@pytest.mark.parametrize(("tokens", "per"), [(1, "sample"), (None, "token")])
def test_losses_are_means_over_what_the_runs_say(
    tmp_path: Path, tokens: int | None, per: str
) -> None:
    documents = [server([3.0, 2.0]), server([4.0, 1.0])]
    for document in documents:
        document["measured"] |= {} if tokens is None else {"tokens_of_sample": tokens}
    paths = [saved(tmp_path, f"run{n}", document) for n, document in enumerate(documents)]
    comparison = compare_curves(paths)
    assert comparison.per == per
    assert draw_curves(comparison).axes[0].get_ylabel() == f"loss [nats per {per}]"
