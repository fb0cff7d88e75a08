"""Recomputed layers as an axis: numbers as plans of their own, and the fewest that fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from parsim.cost.job import Job
from parsim.errors import InputError, NoFeasiblePlan, PlanError
from parsim.plan import PlanSpace, Recompute
from parsim.plan.names import AUTO
from parsim.plan.space import FEWEST, Between
from parsim.planner.equal.seen import Seen
from parsim.planner.search import search, search_front
from parsim.planner.space import check_space, enumerate_plans
from parsim.planner.space.left_out import left_out
from parsim.planner.twins import fold_twins
from parsim.planner.why.pins import pin_words, read_pins
from parsim.sim import simulate
from parsim.space.words import looked_at, preset
from tests.parsim.planner.conftest import with_memory

SLOW = pytest.mark.slow
"""Between others that are tried in every run."""


@pytest.fixture(scope="module")
def narrow(space: PlanSpace) -> PlanSpace:
    """One schedule, no ZeRO, so that every number of layers can be listed."""
    return replace(
        space, schedule=("1f1b", "interleaved_1f1b"), zero_stage=(0,), microbatch_size=(1, 2)
    )


def numbers(job: Job, space: PlanSpace) -> set[tuple[int, int, int]]:
    """Stages, recompute mode and recomputed layers of all legal plans."""
    table = enumerate_plans(job, space).table
    assert table is not None
    columns = (table.pp * table.v, table.recompute, table.recompute_layers)
    return set(zip(*(column.tolist() for column in columns), strict=True))


def test_a_number_is_refused_where_stages_are_smaller(job: Job, narrow: PlanSpace) -> None:
    """6 layers on 1, 2, 3 and 4 stages: 4 layers are in the one stage alone."""
    listed = enumerate_plans(job, replace(narrow, recompute_layers=(4,)))
    assert numbers(job, replace(narrow, recompute_layers=(4,))) == {(1, 0, 4), (1, 1, 4)}
    assert any("recompute_layers=4 must be layers of a stage" in why for why in listed.reasons)


def test_a_range_holds_all_numbers_but_that_which_is_full(job: Job, narrow: PlanSpace) -> None:
    some = numbers(job, replace(narrow, recompute_layers=Between(), pp=(2,), v=(1,)))
    assert some == {*((2, mode, n) for mode in (0, 1) for n in (0, 1, 2)), (2, 2, 0)}
    without = replace(narrow, recompute=(Recompute.NONE,), pp=(2,), v=(1,))
    assert numbers(job, replace(without, recompute_layers=Between(least=1))) == {
        (2, 0, n) for n in (1, 2, 3)
    }


def test_the_fewest_are_no_plan_more(job: Job, narrow: PlanSpace) -> None:
    plain = enumerate_plans(job, narrow).table
    asked = enumerate_plans(job, replace(narrow, recompute_layers=(FEWEST,))).table
    assert plain is not None
    assert asked is not None
    assert len(plain) == len(asked)
    full = asked.recompute == Recompute.FULL
    assert (asked.recompute_layers == np.where(full, 0, FEWEST)).all()


@pytest.fixture(scope="module")
def largest(job: Job, narrow: PlanSpace) -> float:
    """Bytes of the plan that needs the most."""
    return max(ranked.peak_allocated for ranked in search(job, narrow, top=10_000).plans)


@pytest.mark.parametrize(
    "share", [0.5, pytest.param(0.62, marks=SLOW), 0.74, pytest.param(0.86, marks=SLOW), 0.98]
)
def test_the_fewest_that_fit_are_the_best_of_all_numbers(
    job: Job, narrow: PlanSpace, largest: float, share: float
) -> None:
    """Less and less memory of what the largest plan needs."""
    small = with_memory(job, share * largest)
    every = replace(narrow, recompute_layers=Between())
    best = search(small, every, top=1).plans[0]
    searched = search(small, replace(narrow, recompute_layers=(FEWEST,)), top=1)
    assert searched.plans[0].step_time == pytest.approx(best.step_time, rel=1e-12)
    plan = searched.plans[0].plan
    predicted = simulate(small, plan)
    assert predicted.fit.value == "fits"
    assert predicted.step_time == pytest.approx(best.step_time, rel=1e-12)
    if plan.recompute_layers:
        fewer = replace(plan, recompute_layers=plan.recompute_layers - 1)
        assert simulate(small, fewer).fit.value != "fits"


def test_a_number_that_is_settled_later_is_the_plans(job: Job, narrow: PlanSpace) -> None:
    """Also of plans that were looked at in several waves."""
    table = enumerate_plans(job, replace(narrow, recompute_layers=(FEWEST,))).table
    assert table is not None
    waves = (table.take(slice(0, 4)), table.take(slice(4, 8)))
    first, second = (Seen.of(job, narrow, each, job.usable_memory, {}) for each in waves)
    seen = first.appended(second)
    seen.fewest.repeated[[1, 6]] = 2
    assert [seen.table.plan(row).recompute_layers for row in (1, 6)] == [2, 2]


def test_some_layers_are_the_best_somewhere(job: Job, narrow: PlanSpace) -> None:
    """Between memory for all plans and for none there is some where a part of the layers wins."""
    asked = replace(
        narrow,
        recompute_layers=(FEWEST,),
        recompute=(Recompute.NONE,),
        pp=(2,),
        v=(1,),
        tp=(1,),
        cp=(1,),
        microbatch_size=(2,),
        memory_margin=0.0,
    )
    most = max(ranked.peak_allocated for ranked in search(job, asked, top=10_000).plans)
    layers = set()
    for share in np.linspace(0.96, 1.08, 41).tolist():
        try:
            layers.add(search(with_memory(job, share * most), asked, top=1).plans[0].plan.label())
        except NoFeasiblePlan:
            continue
    assert any("recompute1" in label or "recompute2" in label for label in layers), layers


def test_where_no_number_fits_the_plan_is_judged_without(job: Job, narrow: PlanSpace) -> None:
    asked = replace(narrow, recompute_layers=(FEWEST,), recompute=(Recompute.NONE,))
    with pytest.raises(NoFeasiblePlan, match="nothing fits: the nearest plan"):
        search(with_memory(job, 1e6), asked)


def test_a_front_and_a_list_of_the_best(job: Job, narrow: PlanSpace) -> None:
    asked = replace(narrow, recompute_layers=(FEWEST,))
    front = search_front(job, asked).plans
    assert [r.peak_allocated for r in front] == sorted(r.peak_allocated for r in front)[::-1]
    listed = search(job, replace(narrow, recompute_layers=Between()), top=200).plans
    folded = fold_twins(listed)
    assert len(folded) < len(listed)
    for _, kept, twins in folded:  # more recomputed layers for nothing are folded
        assert all(twin.peak_allocated >= kept.peak_allocated for twin in twins)
    assert any(
        twin.plan.recompute_layers > kept.plan.recompute_layers
        for _, kept, twins in folded
        for twin in twins
    )


def test_words(job: Job, narrow: PlanSpace) -> None:
    asked = replace(narrow, recompute_layers=(FEWEST,))
    assert looked_at(narrow)["recompute_layers"] == "none"
    assert looked_at(asked)["recompute_layers"] == "the fewest that fit"
    assert "but with space: full" in left_out(job, narrow)["recompute_layers"]
    assert left_out(job, asked)["recompute_layers"] == "all but the fewest that fit"
    assert preset("full", job)["recompute_layers"] == (FEWEST,)
    assert "recompute_layers" not in preset("standard", job)
    assert read_pins("recompute_layers=fewest") == {"recompute_layers": FEWEST}
    assert pin_words(read_pins("recompute_layers=2,tp=4")) == "recompute_layers=2, tp=4"
    with pytest.raises(InputError, match="recompute_layers=some must be a whole number"):
        read_pins("recompute_layers=some")


def test_an_order_that_is_searched_for_has_no_fewest(job: Job, narrow: PlanSpace) -> None:
    """A layer more may leave room for a faster order, so that the first number may not be best."""
    auto = replace(narrow, schedule=(AUTO, "1f1b"), recompute_layers=(FEWEST,), pp=(2,))
    table = enumerate_plans(job, auto).table
    assert table is not None
    ordered = np.array(table.schedules)[table.schedule] == AUTO
    assert (table.recompute_layers[ordered] == 0).all()
    words = left_out(job, auto)["recompute_layers"]
    assert words == "all but the fewest that fit, with schedule=auto all but none"
    with pytest.raises(PlanError, match="faster order, so that the fewest need not be the best"):
        check_space(job, replace(auto, schedule=(AUTO,)))


def test_spaces_that_no_plan_is_in(job: Job, narrow: PlanSpace) -> None:
    some = replace(narrow, recompute_layers=(2,))
    with pytest.raises(PlanError, match="recompute=full recomputes all layers; add none"):
        check_space(job, replace(some, recompute=(Recompute.FULL,)))
    whole = replace(job, software=replace(job.software, checkpoints_stages=True))
    with pytest.raises(PlanError, match="recomputes whole stages; leave it away"):
        check_space(whole, some)
    beside = replace(some, offload_layers=(1,), pp=(1,))
    refused = enumerate_plans(job, beside)
    assert refused.table is None
    assert any("cannot stand beside offload_layers" in why for why in refused.reasons)
