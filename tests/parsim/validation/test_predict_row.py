"""Rows with zero-bubble schedules, and the bubble that a row states."""

from __future__ import annotations

import pytest

from parsim.plan.names import SPLIT, V_SHAPED
from parsim.sim import simulate
from parsim.sim.step.action_times import stage_times
from parsim.validation.measured_bubble import bubble_from_profile, post_validated_step
from parsim.validation.predict_row import predict_row
from parsim.validation.step.case import build_case
from parsim.validation.step.row_cells import Profile
from parsim.validation.step.row_reader import parse_row
from parsim.validation.tables import RowSkipped
from tests.parsim.validation.conftest import MakeRow

PP8 = {
    "stack": "zero-bubble",
    "pp": "8",
    "dp": "4",
    "micro_batch_size": "4",
    "n_micro_batches": "32",
    "recompute": "none",
    "flash_attention": "no",
}
TIMES = {
    "t_forward_ms": "18.522",
    "t_backward_input_ms": "18.086",
    "t_backward_weight_ms": "9.337",
    "t_p2p_ms": "0.601",
}
AUTHORS = {"zb_1p": 0.1238, "zb_2p": 0.0036, "zb_v": 0.0536, "v_half": 0.1333, "v_min": 0.3089}
"""Bubbles of the authors' schedulers: tests/parsim/schedule/families/test_zero_bubble.py."""

UNIT = Profile(forward=1.0, backward_input=1.0, backward_weight=1.0, message=0.0)


@pytest.mark.parametrize("name", sorted(SPLIT))
def test_a_row_is_predicted(row: MakeRow, name: str) -> None:
    chunks = "2" if name in V_SHAPED else ""
    for vpp in {"", chunks}:
        case = build_case(parse_row(row(**PP8, schedule=name, vpp=vpp)))
        assert (case.plan.schedule, case.plan.v) == (name, 2 if name in V_SHAPED else 1)
    predicted = predict_row("t", row(**PP8, schedule=name))
    assert not predicted.skipped
    assert predicted.predicted_step == post_validated_step(case.job, case.plan)
    assert predicted.predicted_step <= simulate(case.job, case.plan).step_time * (1.0 + 1e-12)
    assert any("validated after the update" in note for note in predicted.notes)
    assert predicted.step_interval is not None
    assert predicted.step_interval[0] < predicted.predicted_step < predicted.step_interval[1]
    assert "measured_bubble_fraction" not in predicted.to_json()


@pytest.mark.parametrize(("name", "vpp"), [("zb_h1", "2"), ("zb_v", "3"), ("v_min", "4")])
def test_chunks_that_the_schedule_cannot_have(row: MakeRow, name: str, vpp: str) -> None:
    predicted = predict_row("t", row(**PP8, schedule=name, vpp=vpp))
    assert predicted.reason == f"schedule {name} contradicts vpp={vpp}"


def test_a_step_without_the_barrier_is_shorter_by_the_late_start(row: MakeRow) -> None:
    """ZB-2p gains over ZB-1p only so; in 104 layers, where the head's stage does not decide."""
    first, two = (
        predict_row("t", row(**PP8 | {"n_layers": "104"}, schedule=name)).predicted_step
        for name in ("zb_1p", "zb_2p")
    )
    assert first is not None
    assert two is not None
    assert 0.98 * first < two < 0.995 * first


@pytest.mark.parametrize("name", AUTHORS)
def test_bubble_with_the_times_of_the_row(row: MakeRow, name: str) -> None:
    predicted = predict_row("t", row(**PP8, **TIMES, schedule=name, bubble_fraction="0.1"))
    document = predicted.to_json()
    assert document["measured_bubble_fraction"] == 0.1
    assert document["bubble_from_profile"] == pytest.approx(AUTHORS[name], abs=1e-4)
    assert 0.0 <= document["predicted_bubble_fraction"] < 0.5


@pytest.mark.parametrize(
    ("name", "bubble"),
    [("1f1b", 7 / 39), ("gpipe", 7 / 39), ("zb_h1", 7 / 103), ("zb_h2", 0.0), ("zb_2p", 0.0)],
)
def test_closed_forms(row: MakeRow, name: str, bubble: float) -> None:
    """(p - 1)/(m + p - 1), (p - 1)/(3 m + p - 1) and 0 for p = 8, m = 32."""
    case = build_case(parse_row(row(**PP8, schedule=name)))
    assert bubble_from_profile(case.job, case.plan, UNIT) == pytest.approx(bubble, abs=1e-12)


def test_a_bubble_without_times_or_step_is_compared_with_parsims(row: MakeRow) -> None:
    predicted = predict_row("t", row(**PP8, schedule="1f1b", step_time_s="", bubble_fraction="0.2"))
    document = predicted.to_json()
    assert document["bubble_from_profile"] is None
    case = build_case(parse_row(row(**PP8, schedule="1f1b")))
    forward, inputs, weights, message = stage_times(case.job, case.plan)
    # 1F1B waits for messages in its steady state too: 2 c ((p - 1) m / p + p - 2)
    waits = 7 * (forward + inputs + weights) + 2 * message * (7 * 32 / 8 + 6)
    bubble = waits / (waits + 32 * (forward + inputs + weights))
    assert document["predicted_bubble_fraction"] == pytest.approx(bubble, rel=1e-9)


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"bubble_fraction": "1.0"}, "bubble_fraction='1.0' must be at least 0 and below 1"),
        ({"bubble_fraction": "few"}, "bubble_fraction='few' is not a number"),
        ({"bubble_fraction": "nan"}, "bubble_fraction='nan' must be at least 0 and below 1"),
        ({"t_forward_ms": "-1"}, "t_forward_ms='-1' must be a number from 1e-15 to 1e+15"),
        ({**TIMES, "t_p2p_ms": "x"}, "t_p2p_ms='x' is not a number"),
        (
            {"t_forward_ms": "3"},
            "t_forward_ms, t_backward_input_ms, t_backward_weight_ms belong together, but "
            "t_backward_input_ms is not stated",
        ),
    ],
)
def test_cells_that_are_wrong(row: MakeRow, cells: dict[str, str], reason: str) -> None:
    with pytest.raises(RowSkipped) as caught:
        parse_row(row(**PP8, **cells))
    assert str(caught.value) == reason


def test_times_are_seconds_and_a_message_may_take_none(row: MakeRow) -> None:
    text = parse_row(row(**PP8, **{**TIMES, "t_p2p_ms": ""})).profile
    assert text == parse_row(row(**PP8, **{**TIMES, "t_p2p_ms": "0"})).profile
    assert text is not None
    assert (text.forward, text.message) == (0.018522, 0.0)
    assert parse_row(row(**PP8)).profile is None
