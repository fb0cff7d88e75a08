"""What a timeline says of a rank and of the step."""

from __future__ import annotations

import pytest

from parsim.comparison.timelines import compare_timelines
from parsim.scenario import load_scenario
from parsim.sim import simulate
from parsim.timelines.timeline import Span, Timeline, ordered
from parsim.units import GIB
from tests.commands import GPT3, LLAMA, SMALL
from tests.parsim.report.text.measured.small_timelines import Pipeline, printed, timeline


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
