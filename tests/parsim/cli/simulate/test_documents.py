"""`parsim simulate` on good input: documents and words."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import ROOT, SCENARIOS, SMALL, Cli


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda path: path.stem)
def test_every_shipped_scenario_has_a_step(cli: Cli, scenario: Path) -> None:
    done = cli("simulate", scenario, "--json")
    document = done.document
    assert (done.code, done.err) == (0, "")
    assert document["step_time_s"] == pytest.approx(sum(document["breakdown_s"].values()), rel=1e-9)
    assert max(document["peak_allocated_bytes"]) == pytest.approx(
        sum(document["memory_bytes"].values())
    )
    roles = document["plan"].get("strategy", {}).get("devices", 1)
    assert len(document["peak_allocated_bytes"]) == document["plan"]["pp"] * roles
    assert max(document["peak_allocated_bytes"]) < document["device_memory_bytes"]
    # transformed convolutions save FLOPs in fp32: MXNet's AlexNet takes 115 % of a V100's peak
    most = 1.2 if document["plan"]["precision"] == "fp32" else 1.0
    assert 0 < document["mfu"] <= document["hfu"] < most
    assert 0 <= document["bubble_fraction"] < 1


def test_more_than_the_peak_is_explained(cli: Cli) -> None:
    out = cli("simulate", ROOT / "scenarios" / "alexnet-one-weird-trick-dgx-1v.yaml").out
    assert "of direct convolutions, of which transforms save some" in " ".join(out.split())
    assert "direct convolutions" not in cli("simulate", SMALL).out


def test_the_document_of_simulate_is_the_contract(cli: Cli) -> None:
    document = cli("simulate", SMALL, "--json").document
    assert type(document["schema_version"]) is int
    assert type(document["plan"]) is dict
    for name in ("step_time_s", "tokens_per_s", "mfu", "hfu", "bubble_fraction", "bubble_overhead"):
        assert type(document[name]) is float, name
    assert [type(peak) for peak in document["peak_allocated_bytes"]] == [float, float]
    for name in ("breakdown_s", "memory_bytes"):
        assert {type(value) for value in document[name].values()} == {float}
    idle = document["bubble_fraction"]
    assert document["bubble_overhead"] == pytest.approx(idle / (1 - idle))
    assert document["tokens_per_s"] == pytest.approx(4 * 128 / document["step_time_s"])


def test_simulate_in_words(cli: Cli) -> None:
    done = cli("simulate", SMALL)
    document = cli("simulate", SMALL, "--json").document
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("tp1 pp2 dp1 mb1 m4 1f1b\n")
    assert f"step time {document['step_time_s']:.3f} s" in " ".join(done.out.split())
    assert "80 % interval" in done.out
    assert f"{100 * document['bubble_fraction']:.1f} % of the pipeline phase" in done.out
    assert "of 0 TFLOP/s" not in done.out


def test_the_event_tier_says_the_same(cli: Cli) -> None:
    plain = cli("simulate", SMALL, "--json").document
    events = cli("simulate", SMALL, "--events", "--json").document
    assert events["step_time_s"] == pytest.approx(plain["step_time_s"], rel=1e-12)


def test_a_field_can_be_set(cli: Cli) -> None:
    document = cli(
        "simulate",
        SMALL,
        "--json",
        "--set",
        "plan.schedule=gpipe",
        "--set",
        "training.global_batch_size=8",
    ).document
    assert document["plan"]["schedule"] == "gpipe"
    assert document["plan"]["num_microbatches"] == 8


def test_what_is_assumed_goes_to_stderr(cli: Cli) -> None:
    done = cli("simulate", SMALL, "--json", "--set", "software=null")
    assert done.err == "note: software is not stated: 'generic' is assumed\n"
    assert done.document == cli("simulate", SMALL, "--json", "--set", "software=generic").document
