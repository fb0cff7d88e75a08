"""Coverage over several suites: by hand, and by case."""

from __future__ import annotations

from executor.suite.repeats import coverage
from executor.suite.results import Pair, Result


def result(name: str, measured: float, interval: tuple[float, float] | None) -> Result:
    return Result(
        name=name,
        family="gpt",
        model="tiny",
        plan="dp2",
        precision="fp32",
        step_time=Pair(predicted=1.0, measured=measured),
        least=measured,
        mad=0.0,
        steps=3,
        peak=Pair(predicted=1.03, measured=1.0),
        kinds={},
        tokens_per_s=1.0,
        mfu=0.5,
        loss=(2.0, 1.0),
        interval=interval,
    )


def test_what_intervals_held() -> None:
    around = (0.9, 1.1)
    runs = [
        [result("a", 1.0, around), result("b", 2.0, around)],
        [result("a", 1.25, around), result("b", 1.05, None)],
        [result("a", 0.95, around)],
    ]
    document = coverage(runs)
    assert (document["runs"], document["held"], document["n"]) == (3, 2, 4)
    assert document["share"] == 0.5
    first, second = document["cases"]["a"], document["cases"]["b"]
    assert (first["held"], first["n"]) == (2, 3)
    assert (second["held"], second["n"]) == (0, 1)
    assert [round(error, 3) for error in first["errors"]] == [0.0, -0.2, 0.053]
    assert round(first["median_abs"], 3) == 0.053
    assert round(first["worst_memory"], 6) == 0.03
