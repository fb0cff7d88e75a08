"""Spearman's correlation and regret, by hand, with ties; groups of plans."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.validation.predict_row import predict_row
from parsim.validation.ranking import PlanTimes, missed, rank, regret, spearman
from parsim.validation.validate import Validation
from parsim.validation.validated_row import ValidatedRow
from tests.parsim.validation.conftest import MakeRow

times = st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.1, 10)), min_size=4, max_size=9)


def pairs(predicted: list[float], measured: list[float]) -> list[tuple[float, float]]:
    return list(zip(predicted, measured, strict=True))


@pytest.mark.parametrize(
    ("predicted", "measured", "expected"),
    [
        ([1, 2, 3, 4], [10, 20, 30, 40], 1.0),
        ([4, 3, 2, 1], [10, 20, 30, 40], -1.0),
        # ranks 1 2 3 4 and 2 1 4 3: 1 - 6 x 4 / (4 x 15)
        ([1, 2, 3, 4], [20, 10, 40, 30], 0.6),
        # ranks 1.5 1.5 3 4 and 1 2 3 4: 4.5 / sqrt(4.5 x 5)
        ([1, 1, 3, 4], [10, 20, 30, 40], 4.5 / (4.5 * 5.0) ** 0.5),
        ([7, 7, 7, 7], [10, 20, 30, 40], 0.0),
    ],
)
def test_spearman_by_hand(predicted: list[float], measured: list[float], expected: float) -> None:
    assert spearman(pairs(predicted, measured)) == pytest.approx(expected)


def test_where_all_plans_are_equally_fast_every_order_is_right() -> None:
    assert spearman(pairs([1, 2, 3, 4], [5, 5, 5, 5])) is None
    assert regret(pairs([1, 2, 3, 4], [5, 5, 5, 5]), 1) == 0.0


def test_regret_by_hand() -> None:
    first = pairs([1, 2, 3, 4], [4, 5, 3, 6])
    assert regret(first, 1) == pytest.approx(4 / 3 - 1)
    assert regret(first, 2) == pytest.approx(4 / 3 - 1)
    assert regret(first, 3) == 0.0


def test_a_tie_is_no_merit() -> None:
    """Plans a and b are predicted equal: the slower is taken."""
    assert regret(pairs([1, 1, 2, 3], [4, 2, 3, 5]), 1) == pytest.approx(4 / 2 - 1)
    assert regret(pairs([1, 1, 2, 3], [2, 4, 3, 5]), 1) == pytest.approx(4 / 2 - 1)


@given(times)
def test_more_tries_are_no_worse(plans: list[tuple[float, float]]) -> None:
    assert regret(plans, 1) >= regret(plans, 3) >= regret(plans, len(plans)) == 0.0


@given(times)
def test_a_perfect_prediction(plans: list[tuple[float, float]]) -> None:
    right = [(measured, measured) for _, measured in plans]
    assert spearman(right) in (None, pytest.approx(1.0))
    assert regret(right, 1) == 0.0


def test_groups_need_four_plans() -> None:
    rows = [("a", 1.0, 1.0)] * 3 + [("b", float(i), float(i)) for i in range(1, 5)]
    ranking = rank(rows)
    assert (ranking.groups, ranking.spearman_mean, ranking.regret_at_3_max) == (1, 1.0, 0.0)
    assert set(rank(rows[:3]).to_json().values()) == {0, None}


def test_means_and_worst_are_over_groups() -> None:
    good = [("a", float(i), float(i)) for i in range(1, 5)]
    bad = [("b", float(i), float(5 - i)) for i in range(1, 5)]
    ranking = rank(good + bad)
    assert (ranking.spearman_mean, ranking.spearman_min) == (0.0, -1.0)
    three = rank(good + bad + [("c", *pair[1:]) for pair in good])
    assert (three.spearman_median, three.regret_at_1_median, three.regret_at_3_median) == (1, 0, 0)
    # of b the slowest plan (4) is predicted fastest; the three first hold 4, 3, 2
    assert (ranking.regret_at_1_mean, ranking.regret_at_1_max) == (1.5, 3.0)
    assert (ranking.regret_at_3_mean, ranking.regret_at_3_max) == (0.5, 1.0)


def test_where_a_slower_plan_is_taken() -> None:
    """The first choice of `a` is not the fastest, that of `b` is; `c` has too few plans."""
    a = [PlanTimes("slow", 1.0, 4.0, (0.5, 2.5)), PlanTimes("fast", 2.0, 3.0, (0.9, 4.0))]
    a += [PlanTimes("third", 3.0, 5.0), PlanTimes("fourth", 4.0, 6.0)]
    b = [PlanTimes(str(n), float(n), float(n)) for n in range(1, 5)]
    rows = [(("a",), each) for each in a] + [(("b",), each) for each in b]
    (wrong,) = missed([*rows, *((("c",), each) for each in a[:3])])
    assert (wrong.decision, wrong.plans) == (("a",), 4)
    assert (wrong.chosen.plan, wrong.fastest.plan) == ("slow", "fast")
    assert wrong.regret == pytest.approx(1 / 3)
    assert wrong.tied
    apart = wrong._replace(chosen=a[0]._replace(interval=(0.9, 1.1)))
    assert not apart.tied
    assert not wrong._replace(fastest=a[2]).tied


def test_a_decision_is_what_a_plan_does_not_change(row: MakeRow) -> None:
    first = predict_row("t", row()).decision
    assert predict_row("t", row(tp="8", dp="4", n_micro_batches="8")).decision == first
    assert predict_row("t", row(global_batch_size="1024", n_micro_batches="2")).decision != first
    assert predict_row("t", row(model="GPT 2B")).decision != first
    lora = {"task": "lora", "lora_rank": "8", "lora_targets": "linear_qkv"}
    assert predict_row("t", row(**lora)).decision not in (first, ())


def test_tables_say_how_they_rank() -> None:
    rows = [
        ValidatedRow(
            table="t", row_id=str(i), plan=f"tp{i}", predicted_step=float(i), measured_step=float(i)
        )
        for i in range(1, 5)
    ]
    skipped = ValidatedRow(table="u", row_id="1", reason="cp=2 is not yet simulated")
    validation = Validation(rows=(*rows, skipped))
    assert set(validation.rankings) == {"t"}
    again = [replace(row, table="v") for row in rows]
    assert validation.ranking().groups == 1
    both = Validation(rows=(*rows, *again)).rankings
    assert [ranking.groups for ranking in both.values()] == [1, 1, 2]
    document = validation.to_json()
    assert document["ranking"]["t"]["groups"] == 1
    assert document["ranking"]["t"]["regret_at_1_mean"] == 0.0
    assert document["ranking"]["u"] == {**dict.fromkeys(document["ranking"]["t"]), "groups": 0}
