"""Families of plans: what they hold, and that no plan of one is faster than its plain plan."""

from __future__ import annotations

import random
import sys
from dataclasses import replace

import numpy as np
import pytest

from parsim.cost.job import Job
from parsim.cost.software import software, software_catalog
from parsim.errors import NoFeasiblePlan
from parsim.plan import Plan, PlanSpace, PlanTable, Recompute
from parsim.plan.space import FEWEST, Between
from parsim.planner.bounds import least_steps
from parsim.planner.search import search, search_front
from parsim.planner.space import enumerate_plans
from parsim.planner.space.families import Families
from parsim.sim.recurrence.evaluate import evaluate
from parsim.space.axes import SETTINGS
from tests.parsim.planner.conftest import with_memory
from tests.parsim.planner.test_brute_force import scenario


@pytest.fixture(scope="module")
def saving(space: PlanSpace) -> PlanSpace:
    """Everything that saves memory."""
    common = replace(space.common, scatter_p2p=False)
    some = replace(
        space,
        common=common,
        offload_layers=Between(),
        recompute_layers=(0, FEWEST, 1),
        microbatch_size=(1, 2),
        schedule=("1f1b", "interleaved_1f1b", "zb_v"),
    )
    return some.with_axes(
        {
            "recompute_modules": ((), ("mlp",), ("layernorm",)),
            "overlap_grad_reduce": (True, False),
            "rank_order": (common.rank_order, ("dp_replicate", "dp_shard", "pp", "cp", "tp")),
        }
    )


def families_of(job: Job, space: PlanSpace) -> Families:
    families = enumerate_plans(job, space).families
    assert families is not None
    return families


def plain(plan: Plan) -> Plan:
    """A plan without whatever saves memory, by plain words."""
    return replace(
        plan, recompute=Recompute.NONE, recompute_layers=0, offload_layers=0, recompute_modules=()
    )


def exact_step(job: Job, plan: Plan) -> float:
    counted = replace(plan, recompute_layers=max(plan.recompute_layers, 0))
    return evaluate(job, counted).step_time


def test_a_family_holds_all_plans_that_differ_by_what_saves_memory(
    job: Job, saving: PlanSpace
) -> None:
    families = families_of(job, saving)
    table, sizes = families.table(), families.sizes
    assert len(table) == len(families) == sizes.sum()
    assert len(sizes) < len(table) / 4
    plans = [table.plan(row) for row in range(len(table))]
    assert len(set(plans)) == len(plans)
    of = np.repeat(np.arange(len(sizes)), sizes).tolist()
    firsts = [families.plain.plan(row) for row in range(len(sizes))]
    assert all(plain(plan) == firsts[number] for plan, number in zip(plans, of, strict=True))
    assert len(set(firsts)) == len(firsts)


def test_some_families_are_the_rows_of_all_of_them(job: Job, saving: PlanSpace) -> None:
    families = families_of(job, saving)
    some = np.sort(np.random.default_rng(0).choice(len(families.sizes), 20, replace=False))
    ends = np.cumsum(families.sizes)
    rows = np.concatenate([np.arange(ends[n] - families.sizes[n], ends[n]) for n in some])
    every, few = families.table(), families.table(some)
    assert [few.plan(row) for row in range(len(few))] == [every.plan(row) for row in rows]


def check_plain_plans(seed: int, most: int) -> None:
    """No plan of some random families is faster than the bound of its plain plan."""
    made = scenario(seed, 1)
    if made is None:
        return
    job, space, _ = made
    if space.recompute_layers is None and not job.software.executor:
        space = replace(space, offload_layers=Between())
    families = families_of(job, space)
    bound = least_steps(job, families.plain)
    several = np.flatnonzero(families.sizes > 1).tolist()
    for number in random.Random(seed).sample(several, min(most, len(several))):
        table = families.table(np.array([number]))
        steps = [exact_step(job, table.plan(row)) for row in range(len(table))]
        assert bound[number] <= min(steps)


@pytest.mark.parametrize("seed", range(6))
def test_no_plan_of_a_family_is_faster_than_its_plain_plan(seed: int) -> None:
    check_plain_plans(seed, 3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6, 106))
def test_no_plan_of_many_families_is_faster_than_its_plain_plan(seed: int) -> None:
    check_plain_plans(seed, 6)


@pytest.mark.parametrize("seed", [0, 3, 4, 5])
def test_no_plan_fits_of_a_family_whose_states_alone_are_too_large(seed: int) -> None:
    made = scenario(seed, 1)
    assert made is not None
    job, space, _ = made
    families = families_of(job, replace(space, recompute_layers=None))
    some = random.Random(seed).sample(range(len(families.sizes)), min(8, len(families.sizes)))
    least = [least_peak(job, families.table(np.array([number]))) for number in some]
    for usable in (0.5 * min(least), float(np.median(least)), 2.0 * max(least)):
        too_large = np.isinf(least_steps(job, families.plain, usable=usable))[some]
        assert (np.array(least)[too_large] > usable).all()
    assert np.isinf(least_steps(job, families.plain, usable=0.0)).all()


def least_peak(job: Job, table: PlanTable) -> float:
    """Bytes of the fullest rank of the plan that needs the least."""
    return min(float(evaluate(job, table.plan(row)).peak.max()) for row in range(len(table)))


def test_a_search_in_waves_knows_families_that_are_too_large(
    job: Job, saving: PlanSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing fits it names the same nearest plan as a search that looks at all at once."""
    tiny = with_memory(job, 0.01 * search(job, saving, top=1).plans[0].peak_allocated)
    messages = []
    for plans in (1 << 19, 16):
        monkeypatch.setattr(sys.modules["parsim.planner.equal.unseen"], "AT_ONCE", plans)
        with pytest.raises(NoFeasiblePlan, match="the nearest plan") as nothing:
            search(tiny, saving)
        messages.append(str(nothing.value))
    assert messages[0] == messages[1]


@pytest.mark.parametrize("share", [0.7, 0.85, 1.0])
def test_a_search_wave_by_wave_finds_what_one_at_once_does(
    job: Job, saving: PlanSpace, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With as much memory as the fastest plan needs without a margin, and less and less."""
    fastest = search(job, saving, top=1).plans[0]
    small = with_memory(job, share * fastest.peak_allocated)
    at_once, front = search(small, saving, top=30), search_front(small, saving)
    waves = sys.modules["parsim.planner.equal.unseen"]
    monkeypatch.setattr(waves, "AT_ONCE", 256)
    some, some_front = search(small, saving, top=30), search_front(small, saving)
    for once, several in ((at_once, some), (front, some_front)):
        numbers = [
            [(p.step_time, p.peak_allocated) for p in result.plans] for result in (once, several)
        ]
        assert numbers[0] == numbers[1]
        assert sum(once.counts.values()) == sum(several.counts.values())
        assert several.optimality == once.optimality
    assert some.counts["out_of_memory"] <= at_once.counts["out_of_memory"]


def test_a_wave_by_wave_search_tells_all_plans_as_decided(
    job: Job, saving: PlanSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["parsim.planner.equal.unseen"], "AT_ONCE", 16)
    told: list[tuple[int, int]] = []
    result = search(job, saving, top=3, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (len(families_of(job, saving)),) * 2
    assert 3 <= result.counts["evaluated"] < told[-1][0] / 4


@pytest.mark.parametrize("stack", sorted(software_catalog()))
def test_no_stack_saves_time_by_saving_memory(job: Job, saving: PlanSpace, stack: str) -> None:
    some = replace(job, software=software(stack))
    narrow = replace(
        saving,
        schedule=None,
        tp=(1, 2),
        microbatch_size=(2,),
        recompute_layers=None if some.software.checkpoints_stages else (0, FEWEST, 1),
    )
    modules = SETTINGS["recompute_modules"].every(some)
    narrow = replace(narrow, varied={"recompute_modules": modules})
    families = families_of(some, narrow)
    bound = least_steps(some, families.plain)
    for number in np.linspace(0, len(bound) - 1, 3).astype(int).tolist():
        table = families.table(np.array([number]))
        steps = [exact_step(some, table.plan(row)) for row in range(len(table))]
        assert bound[number] <= min(steps)
