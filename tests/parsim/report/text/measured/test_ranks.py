"""Which ranks of two timelines are compared."""

from __future__ import annotations

from typing import Any

import pytest

from parsim.comparison.timelines import compare_timelines
from parsim.errors import InputError
from parsim.timelines.timeline import Timeline, ordered
from parsim.units import GIB
from tests.parsim.report.text.measured.small_timelines import timeline


def test_ranks_that_only_one_has_are_told_and_left_out() -> None:
    comparison = compare_timelines(timeline(0, 1, 2), timeline(1, 2, *range(10, 20)))
    assert sorted({row.rank for row in comparison.rows if row.rank is not None}) == [1, 2]
    assert comparison.notes == (
        "not compared: only the predicted timeline has rank 0",
        "not compared: only the measured timeline has rank 10, 11, 12, 13, 14, 15, 16, 17 and 2 "
        "more",
    )


def test_no_common_rank() -> None:
    with pytest.raises(InputError) as caught:
        compare_timelines(timeline(0, 1), timeline(2))
    assert str(caught.value) == (
        "no common rank: predicted has rank 0, 1, measured has rank 2; global ranks need "
        "meta.pipeline_rank to be compared with pipeline ranks"
    )
    with pytest.raises(InputError, match="measured has no rank;"):
        compare_timelines(timeline(0), Timeline(spans=()))


def test_measured_ranks_of_one_pipeline_rank_are_averaged() -> None:
    slow = timeline(2, 3, slower=3.0, peak=10.0 * GIB)
    fast = timeline(0, 1, pipeline_rank={"0": 0, "1": 1, "2": 0, "3": 1})
    measured = Timeline(
        spans=ordered([*fast.spans, *slow.spans]), memory=fast.memory + slow.memory, meta=fast.meta
    )
    comparison = compare_timelines(timeline(0, 1), measured)
    assert [pair.measured for pair in comparison.pairs] == [(0, 2), (1, 3)]
    assert comparison.row("compute_s", 1).measured == pytest.approx((5.0 + 15.0) / 2)
    assert comparison.row("compute_s", 1).predicted == 5.0
    assert comparison.row("F_mean_s").measured == pytest.approx((2.0 + 6.0) / 2)
    assert comparison.row("peak_allocated_bytes", 0).measured == 10.0 * GIB
    assert comparison.row("idle_s", 0).measured == pytest.approx(21.0 - (6.0 + 18.0) / 2)
    assert comparison.notes == (
        "ranks that share a pipeline rank are averaged (peak memory: the highest of them)",
    )


def test_two_runs_on_global_ranks_are_compared_rank_by_rank() -> None:
    both = timeline(0, 1, pipeline_rank={"0": 0, "1": 0})
    assert [pair.rank for pair in compare_timelines(both, both).pairs] == [0, 1]


def test_a_rank_without_pipeline_rank() -> None:
    with pytest.raises(InputError) as caught:
        compare_timelines(timeline(0), timeline(0, 1, pipeline_rank={"0": 0}))
    assert str(caught.value) == (
        "the measured timeline's meta.pipeline_rank has no entry for rank 1; it must name the "
        "pipeline rank of every rank"
    )


@pytest.mark.parametrize(
    ("ours", "theirs", "note"),
    [
        (
            {"ranks": "pipeline ranks (folded)"},
            {"ranks": "global ranks"},
            "pipeline ranks are compared with global ranks of equal number: no pipeline_rank",
        ),
        ({"plan": "tp1"}, {"plan": "tp2"}, "the plans differ: predicted tp1, measured tp2"),
        (
            {"source": "measured"},
            {"source": "predicted"},
            "the first timeline is a measurement and the second a prediction: swapped?",
        ),
    ],
)
def test_what_makes_a_comparison_doubtful_is_told(
    ours: dict[str, Any], theirs: dict[str, Any], note: str
) -> None:
    assert compare_timelines(timeline(0, **ours), timeline(0, **theirs)).notes == (note,)
    assert compare_timelines(timeline(0, **ours), timeline(0, **ours)).notes == ()
