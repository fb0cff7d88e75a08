"""Settings: values of fields that a table has no column for, searched like any other axis."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.software import software
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import CpCommType, Plan, PlanSpace, Recompute
from parsim.plan.space import Between
from parsim.planner.search import search
from parsim.planner.space import enumerate_plans
from parsim.planner.space.left_out import left_out
from parsim.planner.why.pins import pinned, read_pins
from parsim.sim import simulate
from parsim.space.axes import AXES, SETTINGS
from parsim.space.words import looked_at, plan_label, preset

DP_FIRST = ("dp_replicate", "dp_shard", "pp", "cp", "tp")
ON_AND_OFF = (True, False)


@pytest.fixture(scope="module")
def narrow(space: PlanSpace) -> PlanSpace:
    return replace(
        space,
        schedule=("1f1b",),
        cp=(1,),
        recompute=(Recompute.NONE, Recompute.FULL),
        microbatch_size=(1,),
        sequence_parallel=(False,),
        zero_stage=(0, 1),
    )


@pytest.fixture(scope="module")
def varied(narrow: PlanSpace) -> PlanSpace:
    return narrow.with_axes(
        {
            "overlap_grad_reduce": ON_AND_OFF,
            "overlap_param_gather": ON_AND_OFF,
            "rank_order": (narrow.common.rank_order, DP_FIRST),
            "recompute_modules": ((), ("mlp",)),
        }
    )


def plans_of(job: Job, space: PlanSpace) -> list[Plan]:
    table = enumerate_plans(job, space).table
    assert table is not None
    return [table.plan(row) for row in range(len(table))]


def differs(plan: Plan) -> bool:
    """Whether each value that is not the first one makes it another plan, by plain words."""
    return all(
        (
            plan.overlap_grad_reduce or plan.dp > 1,
            plan.overlap_param_gather or (plan.zero_stage > 0 and plan.dp_shard > 1),
            plan.rank_order != DP_FIRST or (plan.pp > 1 and plan.dp > 1),
            not plan.recompute_modules or plan.recompute is Recompute.NONE,
        )
    )


def test_every_combination_is_there_once_where_it_is_another_plan(
    job: Job, narrow: PlanSpace, varied: PlanSpace
) -> None:
    wanted = {
        plan
        for base in plans_of(job, narrow)
        for reduce in ON_AND_OFF
        for gather in ON_AND_OFF
        for order in varied.varied["rank_order"]  # type: ignore[union-attr]
        for names in ((), ("mlp",))
        if differs(
            plan := replace(
                base,
                overlap_grad_reduce=reduce,
                overlap_param_gather=gather,
                rank_order=order,
                recompute_modules=names,
            )
        )
    }
    listed = plans_of(job, varied)
    assert len(listed) == len(wanted) > 3 * len(plans_of(job, narrow))
    assert set(listed) == wanted
    counted = enumerate_plans(job, varied)
    assert counted.enumerated == counted.illegal + len(listed)


def test_the_search_prices_each_setting_as_it_is_simulated(job: Job, varied: PlanSpace) -> None:
    varied = replace(varied, tp=(1,), pp=(2,))
    every = search(job, varied, top=10_000)
    assert {plan.plan.overlap_grad_reduce for plan in every.plans} == {True, False}
    for ranked in every.plans[::7]:
        predicted = simulate(job, ranked.plan, timeline=False)
        assert ranked.step_time == pytest.approx(predicted.step_time, rel=1e-12)
        assert ranked.peak_allocated == pytest.approx(max(predicted.peak_allocated), rel=1e-12)
    assert [r.plan for r in search(job, varied, top=3).plans] == [r.plan for r in every.plans[:3]]


def test_context_ranks_exchange_what_is_asked_for(job: Job, space: PlanSpace) -> None:
    """Every kind once where there are context ranks, and legal: heads that the ranks share."""
    some = replace(space, schedule=("1f1b",), zero_stage=(0,), sequence_parallel=(False,))
    every = plans_of(job, some.with_axes({"cp_comm_type": tuple(CpCommType)[1:]}))
    alone = [plan for plan in plans_of(job, some) if plan.cp > 1]
    kinds = Counter(plan.cp_comm_type for plan in every if plan.cp > 1)
    assert kinds[CpCommType.P2P] == kinds[CpCommType.ALL_GATHER] == len(alone) > 0
    assert 0 < kinds[CpCommType.A2A] <= len(alone)
    heads = job.model.attention
    assert heads is not None
    swapped = [plan for plan in every if plan.cp_comm_type is CpCommType.A2A]
    assert not [plan for plan in swapped if heads.kv_heads % (plan.tp * plan.cp)]
    by_pin = plans_of(job, pinned(some, read_pins("cp=2,cp_comm_type=A2A")))
    assert {plan.cp_comm_type for plan in by_pin} == {CpCommType.A2A}


def test_experts_are_split_by_etp(job: Job, space: PlanSpace) -> None:
    spec = replace(model_spec("mixtral-8x7b"), num_layers=2, seq_len=256)
    mixture = replace(job, model=build_transformer(spec))
    some = replace(space, schedule=("1f1b",), cp=(1,), microbatch_size=(1,), zero_stage=(0,))
    degrees = {plan.etp for plan in plans_of(mixture, some.with_axes({"etp": Between(least=1)}))}
    assert degrees == {1, 2, 4}
    pinned_plans = plans_of(mixture, pinned(some, read_pins("etp=2")))
    assert {plan.etp for plan in pinned_plans} == {2}
    assert {plan.etp for plan in plans_of(mixture, some)} == {1}


def test_what_is_looked_at_and_what_is_not(job: Job, varied: PlanSpace) -> None:
    words = looked_at(varied)
    assert words.keys() == {axis.name for axis in AXES}
    assert words["overlap_grad_reduce"] == "true, false"
    assert words["overlap_p2p"] == "false"
    assert words["rank_order"].startswith("pp-dp_replicate-dp_shard-cp-tp, dp_replicate-")
    assert words["tp"] == "every legal one"
    out = left_out(job, varied)
    assert "overlap_grad_reduce" not in out
    assert out["recompute_modules"] == "all but none, mlp"
    assert out["etp"] == "all but 1"


def test_labels_name_the_settings_that_vary(varied: PlanSpace) -> None:
    plan = Plan(pp=2, dp_replicate=2, overlap_grad_reduce=False, rank_order=DP_FIRST)
    assert plan_label(varied, plan) == f"{plan.label()} no-reduce-overlap by dp_replicate-pp"
    assert plan_label(varied, Plan()) == Plan().label()


def test_the_full_preset_holds_the_settings(job: Job) -> None:
    full, standard = preset("full", job), preset("standard", job)
    assert {"etp", "rank_order", "overlap_grad_reduce"} <= full.keys()
    assert not standard
    for name in SETTINGS.keys() & full.keys():
        assert getattr(Plan(), name) in full[name]


def test_a_compiler_s_regions_are_looked_at_without_being_asked_for(job: Job) -> None:
    """Under MaxText the policies that keep attention's products; elsewhere who asks has modules."""
    regions = (
        (),
        ("core_attn", "layernorm", "mlp"),
        ("core_attn", "layernorm", "mlp", "attn_proj"),
    )
    compiled = replace(job, software=software("maxtext"))
    for name in ("standard", "full"):
        assert preset(name, compiled)["recompute_modules"] == regions
    assert "recompute_modules" not in preset("standard", job)
    assert not any("attn_proj" in names for names in preset("full", job)["recompute_modules"])


def test_the_search_finds_the_policy_that_a_vendor_tuned() -> None:
    """Llama 3 70B on 128 H100s: between keeping everything, too large, and full recomputation."""
    cluster = Cluster(system=load_catalog().system("dgx-h100"), num_nodes=16)
    model = build_transformer(model_spec("llama3-70b"))
    job = Job(model=model, cluster=cluster, software=software("maxtext"), global_batch_size=256)
    narrow = PlanSpace(global_batch_size=256, tp=(1,), pp=(1,), cp=(1,))
    best, *others = search(job, narrow.with_axes(preset("standard", job))).plans
    assert best.plan.recompute_modules
    full = [entry.step_time for entry in others if entry.plan.recompute is Recompute.FULL]
    assert min(full) > 1.05 * best.step_time


def test_the_order_of_settings_in_a_file_changes_nothing(job: Job, narrow: PlanSpace) -> None:
    settings = [("overlap_grad_reduce", ON_AND_OFF), ("scatter_p2p", ON_AND_OFF)]
    first, second = (
        enumerate_plans(job, replace(narrow, varied=dict(varied))).families
        for varied in (settings, settings[::-1])
    )
    assert first is not None
    assert second is not None
    assert first.table().settings == second.table().settings
    assert first.table().setting.tolist() == second.table().setting.tolist()
