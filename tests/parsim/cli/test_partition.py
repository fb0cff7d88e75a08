"""`parsim partition`: its table, its document, and bad input."""

from __future__ import annotations

import pytest

from tests.commands import ROOT, Cli

VGG = ROOT / "tests" / "parsim" / "partition" / "profiles" / "vgg16.graph.txt"
LEVELS = ("--level", "4@10GB/s", "--level", "4@1.25GB/s")


def test_the_published_plan_of_vgg16(cli: Cli) -> None:
    done = cli("partition", VGG, *LEVELS)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("12-3-1: 44.121 ms a micro-batch in the steady state\n")
    assert "3.069 times as fast as data parallelism" in done.out
    assert "proven: no cut" in done.out


def test_the_document(cli: Cli) -> None:
    document = cli("partition", VGG, *LEVELS, "--json").document
    assert document["schema_version"] == 1
    assert document["plan"] == "12-3-1"
    assert [stage["replicas"] for stage in document["stages"]] == [12, 3, 1]
    assert sum(len(stage["layers"]) for stage in document["stages"]) == 40
    assert sum(s["compute_s"] for s in document["stages"]) == pytest.approx(
        document["one_device_s"]
    )


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ((VGG, "--level", "4"), 2, "--level '4' must be N@BANDWIDTH, e.g. 4@10GB/s"),
        ((VGG, "--level", "x@1GB/s"), 2, "must be N@BANDWIDTH"),
        ((VGG, "--level", "4@10"), 2, "10"),
        ((VGG, *LEVELS, "--mode", "best"), 2, "mode='best' is unknown"),
        *(
            ((VGG, *LEVELS, "--compression", value), 2, f"compression={value}: allowed are finite")
            for value in ("0.5", "0", "nan", "inf")
        ),
        (
            (VGG, *LEVELS, "--memory", "1MB", "--straight"),
            3,
            "no partition fits 1.0 MiB a device; the whole model has 0.5 GiB of weights",
        ),
        ((VGG, "--level", "4@1GB/s", "--memory", "1MB"), 3, "no partition fits 1.0 MiB a device"),
        (("none.txt", *LEVELS), 2, "none.txt"),
    ],
)
def test_bad_input(cli: Cli, words: tuple[object, ...], code: int, message: str) -> None:
    done = cli("partition", *words)
    assert (done.code, done.out) == (code, "")
    assert message in done.err
