"""Two timelines compared: values against hand counts, errors by formula, ranks matched, text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.comparison.compared import TimelineComparison
from parsim.comparison.timelines import compare_timelines
from parsim.errors import InputError
from parsim.report.text.measured.timelines import comparison_view
from parsim.report.text.tables import console
from parsim.scenario import load_scenario
from parsim.sim import simulate
from parsim.timelines.timeline import MemoryCurve, Span, Timeline, ordered
from parsim.units import GIB
from tests.commands import GPT3, LLAMA, SMALL

Pipeline = Callable[..., Timeline]


def spans(rank: int, *, slower: float = 1.0) -> list[Span]:
    """A rank that computes 2 s and 4 s, 1 s of the latter exposed, reduces and updates."""
    lanes = [
        Span(rank, "compute", "F", 0.0, 2.0, rank, 0),
        Span(rank, "compute", "B", 3.0, 7.0, rank, 0, exposed=1.0),
        Span(rank, "dp", "REDUCE_GRAD", 6.0, 8.5, rank),
        Span(rank, "compute", "OPTIMIZER", 8.5, 9.0),
    ]
    return [
        s._replace(start=s.start * slower, end=s.end * slower, exposed=s.exposed * slower)
        for s in lanes
    ]


def timeline(*ranks: int, slower: float = 1.0, peak: float = 8.0 * GIB, **meta: Any) -> Timeline:
    return Timeline(
        spans=ordered(span for rank in ranks for span in spans(rank, slower=slower)),
        memory=tuple(MemoryCurve(rank=r, times=(0.0, 1.0), bytes=(1.0, peak)) for r in ranks),
        meta=meta,
    )


def scaled(timeline: Timeline, factor: float) -> Timeline:
    """All times longer by a factor, those in `meta` too."""
    step = timeline.meta.get("step_time_s")
    return Timeline(
        spans=tuple(
            s._replace(start=s.start * factor, end=s.end * factor, exposed=s.exposed * factor)
            for s in timeline.spans
        ),
        memory=timeline.memory,
        meta={**timeline.meta, **({"step_time_s": step * factor} if step else {})},
    )


def printed(comparison: TimelineComparison, capsys: pytest.CaptureFixture[str]) -> list[str]:
    console().print(comparison_view(comparison))
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


# --------------------------------------------------------------------------- quantities


def test_the_quantities_of_a_rank_by_hand() -> None:
    comparison = compare_timelines(timeline(0), timeline(0))
    values = {row.quantity: row.measured for row in comparison.rows if row.rank == 0}
    assert values == {
        "compute_s": 5.0,  # 2 + 4 - 1
        "exposed_communication_s": 1.0,  # of no stream: only the action tells of it
        "exposed_tp_s": 0.0,
        "exposed_dp_s": 0.0,
        "exposed_p2p_s": 0.0,
        "idle_s": 1.0,  # from 2 to 3
        "gradient_reduction_s": 1.5,  # from 7 to 8.5; before that a backward hides it
        "optimizer_s": 0.5,
        "peak_allocated_bytes": 8.0 * GIB,
    }


def test_the_quantities_of_the_step_by_hand() -> None:
    comparison = compare_timelines(timeline(0), timeline(0))
    values = {row.quantity: row.measured for row in comparison.rows if row.rank is None}
    assert values == {
        "step_time_s": 9.0,
        "pipeline_time_s": 7.0,
        "bubble_fraction": pytest.approx(1 / 7),
        "compute_s": 5.0,
        "exposed_communication_s": 1.0,
        "exposed_tp_s": 0.0,
        "exposed_dp_s": 0.0,
        "exposed_p2p_s": 0.0,
        "optimizer_s": 0.5,
        "F_mean_s": 2.0,
        "F_exposed_mean_s": 0.0,
        "B_mean_s": 4.0,
        "B_exposed_mean_s": 1.0,
        "OPTIMIZER_mean_s": 0.5,
        "REDUCE_GRAD_mean_s": 2.5,
    }


def test_exposed_communication_by_stream_by_hand() -> None:
    """Inside actions, beside them, and messages: each second that was waited for once."""
    drawn = Timeline(
        spans=ordered(
            [
                Span(0, "recv", "RECV_F", 0.0, 2.0, 1, 0, exposed=0.5),  # 1.5 s before it was sent
                Span(0, "compute", "F", 2.0, 5.0, 1, 0, exposed=1.25),
                Span(0, "tp", "EXCHANGE", 3.0, 3.75, 1, 0, exposed=0.75),
                Span(0, "dp", "UNSHARD", 4.0, 4.75, 1, 0, exposed=0.5),  # 0.25 s beside compute
                Span(0, "compute", "B", 5.0, 8.0, 1, 0),
                Span(0, "dp", "REDUCE_GRAD", 6.0, 7.0, 1),
                Span(0, "dp", "REDUCE_GRAD", 6.5, 8.5, 1, exposed=0.5),
                Span(0, "send", "SEND_B", 8.0, 8.25, 1, 0, exposed=0.25),
                Span(0, "compute", "OPTIMIZER", 8.5, 9.5, exposed=0.25),
                Span(0, "dp", "GATHER_PARAM", 9.25, 9.5, exposed=0.25),
            ]
        ),
    )
    comparison = compare_timelines(drawn, drawn)
    values = {row.quantity: row.measured for row in comparison.rows if row.rank == 0}
    assert values == {
        "compute_s": 4.75,
        "exposed_communication_s": 2.75,
        "exposed_tp_s": 0.75,
        "exposed_dp_s": 1.25,
        "exposed_p2p_s": 0.75,
        "idle_s": 0.0,  # the phase begins with F
        "gradient_reduction_s": 0.5,
        "optimizer_s": 0.75,
    }
    assert (
        comparison.row("REDUCE_GRAD_mean_s").measured == 2.5
    )  # from 6 to 8.5, both buckets together
    assert comparison.row("OPTIMIZER_mean_s").measured == 0.75


def test_an_update_between_actions_is_not_idle() -> None:
    """A pipeline without flush updates behind each backward; the last update is past the phase."""
    drawn = Timeline(
        spans=ordered(
            [
                Span(0, "compute", "F", 0.0, 1.0, 0, 0),
                Span(0, "compute", "B", 1.0, 3.0, 0, 0),
                Span(0, "compute", "OPTIMIZER", 3.0, 3.5),
                Span(0, "compute", "F", 4.0, 5.0, 0, 1),
                Span(0, "compute", "B", 5.0, 7.0, 0, 1),
                Span(0, "compute", "OPTIMIZER", 7.0, 7.5),
            ]
        ),
    )
    comparison = compare_timelines(drawn, drawn)
    assert comparison.row("idle_s", 0).measured == 0.5  # from 3.5 to 4
    assert comparison.row("bubble_fraction").measured == pytest.approx(0.5 / 7)
    assert comparison.row("optimizer_s", 0).measured == 1.0


def test_what_is_zero_on_both_sides_is_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(compare_timelines(timeline(0), timeline(0)), capsys)
    assert not any(line.startswith(("exposed_tp_s", "F, exposed")) for line in text)
    assert any(line.startswith("B, exposed") for line in text)


@pytest.mark.parametrize("scenario", [SMALL, LLAMA, GPT3])
def test_a_prediction_s_timeline_says_what_the_prediction_says(scenario: str) -> None:
    job, plan = (loaded := load_scenario(scenario)).job, loaded.fixed_plan()
    prediction = simulate(job, plan, timeline=True)
    assert prediction.timeline is not None
    found_here = compare_timelines(prediction.timeline, prediction.timeline)
    assert found_here.row("step_time_s").measured == prediction.step_time
    assert found_here.row("pipeline_time_s").measured == pytest.approx(prediction.pipeline_time)
    assert found_here.row("bubble_fraction").measured == pytest.approx(prediction.bubble_fraction)
    for rank, peak in enumerate(prediction.peak_allocated):
        assert found_here.row("peak_allocated_bytes", rank).measured == pytest.approx(peak)
    ranks = range(plan.pp)
    compute = sum(found_here.row("compute_s", r).measured or 0.0 for r in ranks) / plan.pp
    parts = prediction.breakdown
    assert compute == pytest.approx(parts["forward"] + parts["backward"] + parts["recompute"])
    inside = (
        sum(found_here.row(name).measured or 0.0 for name in ("exposed_tp_s", "exposed_dp_s"))
        - sum(
            span.exposed
            for span in prediction.timeline.spans
            if span.stream == "dp" and span.kind != "SHARD"
        )
        / plan.pp
    )
    assert inside == pytest.approx(parts["exposed_communication"], abs=1e-9 * prediction.step_time)


def test_compute_exposed_and_idle_make_up_the_phase(pipeline: Pipeline) -> None:
    drawn = pipeline(4, 8, communication=True, memory=True)
    comparison = compare_timelines(drawn, drawn)
    phase = comparison.row("pipeline_time_s").measured
    for rank in drawn.ranks:
        parts = ("compute_s", "exposed_communication_s", "idle_s")
        total = sum(comparison.row(name, rank).measured or 0.0 for name in parts)
        assert total == pytest.approx(phase)


def test_the_step_time_is_that_of_meta_then_of_the_spread_then_the_end() -> None:
    spread = {"step_time_s": {"median": 10.0}}
    cases = [timeline(0, step_time_s=11.0, spread=spread), timeline(0, spread=spread), timeline(0)]
    values = [compare_timelines(case, case).row("step_time_s").measured for case in cases]
    assert values == [11.0, 10.0, 9.0]


def test_the_allocator_s_own_peaks_go_before_the_curve_s() -> None:
    drawn = timeline(0, 1, peak_allocated_bytes=[5.0, 6.0])
    comparison = compare_timelines(timeline(0, 1), drawn)
    assert [comparison.row("peak_allocated_bytes", rank).measured for rank in (0, 1)] == [5.0, 6.0]
    assert comparison.row("peak_allocated_bytes", 0).predicted == 8.0 * GIB


# --------------------------------------------------------------------------- errors


def test_errors_are_signed_shares_of_the_measured_value() -> None:
    row = compare_timelines(timeline(0), timeline(0, slower=2.0)).row("optimizer_s", 0)
    assert (row.predicted, row.measured, row.difference, row.error) == (0.5, 1.0, -0.5, -0.5)


def test_there_is_no_error_where_nothing_is_measured_or_it_is_missing() -> None:
    bare = Timeline(spans=tuple(s for s in spans(0) if s.kind in ("F", "B")))
    comparison = compare_timelines(timeline(0), bare)
    zero = comparison.row("optimizer_s", 0)
    assert (zero.predicted, zero.measured, zero.error) == (0.5, 0.0, None)
    missing = comparison.row("peak_allocated_bytes", 0)
    assert (missing.measured, missing.difference, missing.error) == (None, None, None)
    kind = comparison.row("OPTIMIZER_mean_s")
    assert (kind.predicted, kind.measured, kind.error) == (0.5, None, None)


@given(
    p=st.integers(1, 4),
    m=st.integers(1, 6),
    factor=st.floats(0.1, 10.0),
    communication=st.booleans(),
)
def test_longer_times_give_exactly_that_error(
    p: int, m: int, factor: float, communication: bool
) -> None:
    from tests.parsim.report.conftest import lay_out

    first = lay_out(p, m, 1, communication=communication, memory=True)
    same = compare_timelines(first, first, tolerance=0.0)
    assert {row.error for row in same.rows} <= {0.0, None}
    assert same.within_tolerance
    assert {row.difference for row in same.rows} == {0.0}
    for row in compare_timelines(scaled(first, factor), first).rows:
        if row.error is not None:
            expected = factor - 1.0 if row.unit == "s" else 0.0
            assert row.error == pytest.approx(expected, abs=1e-6), row


@pytest.mark.parametrize(("factor", "error"), [(1.2, 0.2), (1 / 1.2, 1 / 1.2 - 1)])
def test_a_fifth_slower_or_faster(pipeline: Pipeline, factor: float, error: float) -> None:
    first = pipeline(4, 8, communication=True, memory=True)
    comparison = compare_timelines(scaled(first, factor), first, tolerance=0.1)
    assert comparison.row("step_time_s").error == pytest.approx(error, rel=1e-12)
    assert comparison.row("compute_s", 2).error == pytest.approx(error, rel=1e-12)
    assert not comparison.within_tolerance


# --------------------------------------------------------------------------- verdict


def test_the_worst_of_step_time_and_peaks_is_named() -> None:
    comparison = compare_timelines(
        timeline(0, 1, slower=1.05, peak_allocated_bytes=[8.0 * GIB, 6.0 * GIB]), timeline(0, 1)
    )
    assert not comparison.within_tolerance
    assert comparison.headline == (
        "peak_allocated_bytes of rank 1: predicted 6.000 GiB, measured 8.000 GiB, error -25.0 %, "
        "is outside the tolerance of 10 %"
    )


def test_a_tolerance_is_kept_up_to_itself() -> None:
    pair = timeline(0, slower=1.25), timeline(0)
    assert compare_timelines(*pair, tolerance=0.25).within_tolerance
    assert not compare_timelines(*pair, tolerance=0.2499).within_tolerance
    assert compare_timelines(*pair, tolerance=0.3).headline == (
        "step_time_s: predicted 11.250 s, measured 9.000 s, error +25.0 %, "
        "is within the tolerance of 30 %"
    )


def test_other_quantities_are_not_judged() -> None:
    measured = Timeline(
        spans=tuple(s._replace(end=s.end - 0.25) if s.kind == "OPTIMIZER" else s for s in spans(0)),
        meta={"step_time_s": 9.0},
    )
    comparison = compare_timelines(timeline(0), measured, tolerance=0.0)
    assert comparison.row("optimizer_s", 0).error == 1.0
    assert comparison.within_tolerance


@pytest.mark.parametrize("tolerance", [-0.1, float("nan"), float("inf")])
def test_a_tolerance_that_is_none(tolerance: float) -> None:
    with pytest.raises(InputError) as caught:
        compare_timelines(timeline(0), timeline(0), tolerance=tolerance)
    assert str(caught.value) == (
        f"tolerance={tolerance} must be a finite share, at least 0; e.g. 0.1"
    )


# --------------------------------------------------------------------------- ranks


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


# --------------------------------------------------------------------------- text


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
