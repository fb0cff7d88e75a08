"""How a comparison of timelines is printed."""

from __future__ import annotations

import pytest

from parsim.comparison.timelines import compare_timelines
from parsim.units import GIB
from tests.parsim.report.text.measured.small_timelines import printed, timeline


@pytest.mark.parametrize("source", ["predicted", "measured"])
def test_two_timelines_of_one_kind_are_the_first_and_the_second(
    source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is called measured that was predicted, nor the other way round."""
    first, second = timeline(0, source=source), timeline(0, slower=2.0, source=source)
    comparison = compare_timelines(first, second)
    text = "\n".join(printed(comparison, capsys))
    assert "first" in text
    assert "second" in text
    assert "relative difference -50.0 %, is outside the tolerance" in text
    assert not any(word in text for word in ("measure", "predict", "error"))
    assert comparison.to_json()["names"] == ["first", "second"]


def test_the_text_has_differences_errors_and_spread(capsys: pytest.CaptureFixture[str]) -> None:
    spread = {"step_time_s": {"median": 18.0, "min": 17.5, "mad": 0.25, "n": 20}}
    comparison = compare_timelines(
        timeline(0), timeline(0, slower=2.0, spread=spread), tolerance=0.6
    )
    lines = printed(comparison, capsys)
    assert " ".join(lines[1].split()) == (
        "step_time_s 9.000 s 18.000 s -9.000 s -50.0 % "
        "median 18.000 s, min 17.500 s, MAD 0.250 s, n 20"
    )
    assert any(
        line.split() == ["bubble_fraction", "14.3", "%", "14.3", "%", "+0.0", "points", "+0.0", "%"]
        for line in lines
    )
    assert any(line.split()[:4] == ["optimizer_s", "0", "0.500", "s"] for line in lines)
    assert lines[-1] == comparison.headline


def test_of_many_ranks_the_worst_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    peaks = [8.0 * GIB] * 12
    peaks[7] = 4.0 * GIB
    ours = timeline(*range(12))
    lines = printed(
        compare_timelines(ours, timeline(*range(12), peak_allocated_bytes=peaks)), capsys
    )
    (line,) = [line for line in lines if line.startswith("peak_allocated_bytes  ")]
    assert line.split()[1:4] == ["7", "8.000", "GiB"]
    assert "of 12 ranks the one with the largest difference; --json has all" in lines
