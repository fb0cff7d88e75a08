"""Schedules of the user's own: predicted like named ones, and the tiers equal on any."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest

from parsim.cost.job import Job
from parsim.cost.kernel.quantized import Sides
from parsim.cost.layer.layers import LayerCoster
from parsim.cost.layer.operator_parts import Kernels
from parsim.cost.layer.products import Products
from parsim.cost.software import software
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.stages import layer_counts
from parsim.cost.step.step import stage_cut
from parsim.model.operators import Linear
from parsim.plan import Plan, PlanTable, Recompute
from parsim.plan.precision import Quantization
from parsim.schedule import Action, Kind, Schedule, schedule_of
from parsim.schedule.lowering import lower
from parsim.sim import simulate
from parsim.sim.recurrence.evaluate import Evaluation, evaluate
from parsim.sim.step.backward_in_two import parts_of_backward
from parsim.sim.step.schedule_costs import action_seconds, exposed_seconds, is_looped, on_ranks
from parsim.strategy.synchronous import LATE
from tests.executor.random_schedules import random_schedule
from tests.parsim.sim.cases import Case, random_costs
from tests.parsim.sim.conftest import PLANS
from tests.parsim.sim.recurrence.planes import run_planes
from tests.parsim.sim.tiers import both_tiers, finish_events, finish_times, reduced_events

PIPELINES = [name for name, plan in PLANS.items() if plan.pp > 1]


def with_actions(plan: Plan, schedule: Schedule) -> Plan:
    """The plan with a schedule as if read from a file."""
    return replace(
        plan,
        pp=schedule.pp,
        v=schedule.num_stages // schedule.pp,
        num_microbatches=schedule.num_microbatches,
        schedule="own.csv",
        actions=schedule.to_csv(),
    )


def placed(schedule: Schedule, rank_of: dict[int, int]) -> Schedule:
    """These rows on other ranks."""
    order = sorted(rank_of, key=rank_of.__getitem__)
    return Schedule.from_ranks((schedule.ranks[rank] for rank in order), name="placed")


def evaluated(job: Job, plan: Plan) -> Evaluation:
    return evaluate(job, plan, keep=True)


# ------------------------------------------------------------------------------------ named ones


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("lowered", [False, True])
def test_a_named_schedule_from_a_file_is_bit_equal(job: Job, name: str, lowered: bool) -> None:
    plan = PLANS[name]
    schedule = schedule_of(plan)
    file = with_actions(
        plan, lower(schedule, unshard=True, reduce_grad=True) if lowered else schedule
    )
    named, read = simulate(job, plan, timeline=True), simulate(job, file, timeline=True)
    assert named.timeline is not None
    assert read.timeline is not None
    meta = {**read.timeline.meta, "plan": plan.label()}
    assert replace(read.timeline, meta=meta) == named.timeline
    assert replace(read, plan=plan, timeline=None) == replace(named, timeline=None)


# ---------------------------------------------------------------------------------- any legal one


@pytest.mark.parametrize("hundred", range(3))
def test_all_engines_are_bit_equal(hundred: int) -> None:
    """Tier B, tier C and the planes of ranks, on exact sums."""
    for seed in range(100 * hundred, 100 * hundred + 100):
        rng = random.Random(seed)
        schedule = random_schedule(seed, pp=rng.randint(2, 5))
        case = Case(schedule, random_costs(schedule, rng))
        graph, result, end, recorded = both_tiers(case)
        assert finish_times(graph, result) == finish_events(case, recorded), seed
        assert result.clock[:, 0].tolist() == recorded.pipelines[0].clock, seed
        assert end.times[LATE].ready[:, 0].tolist() == reduced_events(recorded), seed
        assert float(end.step_time[0]) == recorded.step_time, seed
        planes = run_planes(schedule, case.costs, np.ones((schedule.pp, 2, 2)))
        assert planes.step_time == recorded.step_time, seed


def random_plans() -> list[Plan]:
    """Random schedules of 2, 4 and 8 ranks on 16 devices, all that a plan can express."""
    plans = []
    for seed in range(200):
        rng = random.Random(seed)
        schedule = random_schedule(seed, pp=rng.choice([2, 4, 8]))
        if schedule.num_stages % schedule.pp:
            continue
        dp = 16 // schedule.pp
        zero = rng.choice([0, 1, 2])
        base = Plan(
            dp_shard=dp if zero else 1, dp_replicate=1 if zero else dp, zero_stage=zero,
            overlap_p2p=rng.random() < 0.5, overlap_grad_reduce=rng.random() < 0.5,
            recompute=Recompute(rng.choice([0, 1, 2])), bucket_bytes=5e7,
        )  # fmt: skip
        plans.append(with_actions(base, schedule))
    return plans


def test_random_plans_are_many_and_of_all_kinds() -> None:
    plans = random_plans()
    assert len(plans) > 30
    assert {plan.v for plan in plans} == {1, 2}
    schedules = [schedule_of(plan) for plan in plans]
    assert any(schedule.v > schedule.num_stages // schedule.pp for schedule in schedules)
    assert {a.kind for s in schedules for a in chain(*s.ranks)} == set(list(Kind)[:4])


@pytest.mark.parametrize("plan", random_plans(), ids=lambda plan: f"p{plan.pp}v{plan.v}")
def test_a_prediction_of_any_legal_schedule(job: Job, plan: Plan) -> None:
    prediction = simulate(job, plan, tier="events", timeline=True)  # refuses where the tiers differ
    assert sum(prediction.breakdown.values()) == pytest.approx(prediction.step_time, rel=1e-12)
    assert sum(prediction.memory.values()) == pytest.approx(
        max(prediction.peak_allocated), rel=1e-12
    )
    assert prediction.timeline is not None
    for rank, curve in enumerate(prediction.timeline.memory):
        assert max(curve.bytes) == pytest.approx(prediction.peak_allocated[rank], rel=1e-9)
    spans = [span for span in prediction.timeline.spans if span.kind in ("F", "B", "I", "W")]
    assert len(spans) == sum(map(len, schedule_of(plan).ranks))
    assert max(span.end for span in spans) == pytest.approx(prediction.pipeline_time, rel=1e-12)


# ------------------------------------------------------------------------------------- placement

VEE = (
    "0F0,0F1,3F0,3B0,3F1,3B1,0B0,0B1\n"
    "1F0,2F0,1F1,2F1,2B0,1B0,2B1,1B1\n"
)  # fmt: skip


def test_a_looped_placement_is_left_to_cost() -> None:
    looped = Schedule.from_csv("0F0,2F0,2B0,0B0\n1F0,3F0,3B0,1B0\n")
    assert is_looped(looped)
    for text in (VEE, "0F0,0B0\n1F0,2F0,2B0,1B0\n", "1F0,1B0\n0F0,0B0\n"):
        assert not is_looped(Schedule.from_csv(text))


def test_stages_are_summed_on_their_ranks() -> None:
    stages = np.array([[1.0], [2.0], [4.0], [8.0]])
    assert on_ranks(stages, Schedule.from_csv(VEE))[:, 0].tolist() == [9.0, 6.0]


def test_a_vee_sends_nothing_where_both_stages_are_on_one_rank(job: Job) -> None:
    base = Plan(dp_replicate=4, tp=2)
    result = evaluated(job, with_actions(base, Schedule.from_csv(VEE)))
    twice = replace(base, pp=2, v=2, schedule="interleaved_1f1b", num_microbatches=2)
    looped = evaluated(job, twice)
    hop = result.step.costs.hop[:, 0].tolist()
    assert hop == [looped.step.costs.hop[0, 0], 0.0, looped.step.costs.hop[0, 0], 0.0]
    assert result.step.costs.parameters.tolist() == looped.step.costs.parameters.tolist()
    assert job.model.tied_embeddings
    assert (result.step.costs.tied[0], looped.step.costs.tied[0] > 0) == (0.0, True)
    # rank 0 has embedding and head, so its optimizer takes longer than either's in the loop
    assert result.step.costs.optimizer[0, 0] > looped.step.costs.optimizer.max()
    assert result.step.costs.optimizer[1, 0] < looped.step.costs.optimizer.min()
    assert result.memory_of(0).logits[:, 0].tolist() == [looped.memory_of(0).logits[1, 0], 0.0]


def test_messages_between_any_two_ranks_cost_what_they_cross(job: Job) -> None:
    """Four ranks of 4 devices on two nodes of 8: ranks 0 and 1, and 2 and 3, share a node."""
    base = Plan(pp=4, tp=4, num_microbatches=1, schedule="gpipe")
    inside, across, _, _ = evaluated(job, base).step.costs.hop[:, 0].tolist()
    assert 0 < inside < across
    other = placed(schedule_of(base), {0: 0, 1: 2, 2: 3, 3: 1})
    assert other.stage_rank == (0, 2, 3, 1)
    hop = evaluated(job, with_actions(base, other)).step.costs.hop[:, 0].tolist()
    assert hop == [across, inside, across, 0.0]


def test_inside_a_node_it_does_not_matter_which_rank_is_which(job: Job) -> None:
    first = replace(job, cluster=replace(job.cluster, num_nodes=1))
    base = Plan(pp=4, tp=2, num_microbatches=6)
    named = simulate(first, base)
    for rank_of in ({0: 3, 1: 2, 2: 1, 3: 0}, {0: 2, 1: 0, 2: 3, 3: 1}):
        prediction = simulate(
            first, with_actions(base, placed(schedule_of(base), rank_of)), tier="events"
        )
        assert prediction.step_time == named.step_time
        moved = [prediction.peak_allocated[rank_of[rank]] for rank in range(4)]
        assert moved == list(named.peak_allocated)


# ------------------------------------------------------------------------------- split backwards


HALVES_OF_TWO = "0F0,0I0,0W0\n1F0,1I0,1W0\n"


def halves(plan: Plan) -> Schedule:
    """The plan's schedule with every B as I and then W."""
    parts = {Kind.F: (Kind.F,), Kind.B: (Kind.I, Kind.W)}
    return Schedule.from_ranks(
        ((Action(s, part, mb) for s, kind, mb in row for part in parts[kind])
         for row in schedule_of(plan).ranks), name="halves",
    )  # fmt: skip


@pytest.mark.parametrize("recompute", Recompute)
def test_the_two_parts_are_the_whole(job: Job, recompute: Recompute) -> None:
    plan = with_actions(
        Plan(pp=4, tp=4, num_microbatches=4, recompute=recompute), halves(PLANS["1f1b"])
    )
    costs = evaluated(job, plan).step.costs
    weight, exposed = action_seconds(costs)[Kind.W], exposed_seconds(costs)
    inner, outer = exposed[Kind.I], exposed[Kind.W]
    share = (weight / costs.backward)[1:-1]  # between embedding and head
    assert (share > 0.15).all()
    assert (share < 0.6).all()
    assert weight[0] == costs.backward[0]  # nobody needs the gradient of the tokens
    assert np.allclose(inner + outer, costs.exposed_backward, rtol=1e-15)
    assert (inner <= costs.backward - weight).all()
    assert (outer <= weight).all()


def test_recomputation_is_no_part_of_w(job: Job) -> None:
    plain = with_actions(Plan(pp=4, tp=4, num_microbatches=4), halves(PLANS["1f1b"]))
    again = replace(plain, recompute=Recompute.FULL)
    without, with_it = (evaluated(job, plan).step.costs for plan in (plain, again))
    assert (with_it.backward > 1.2 * without.backward).all()
    # nearly: what the host adds to a longer action is shared out
    longer, weight = (action_seconds(costs)[Kind.W][1:] for costs in (with_it, without))
    assert np.allclose(longer, weight, rtol=0.15)


class WithoutWeights(LayerCoster):
    """Prices layers as if weight gradients cost nothing."""

    def __init__(self, job: Job, table: PlanTable) -> None:
        super().__init__(job, table)
        self.operators.products = NoWeightGradients(job, table)


class NoWeightGradients(Products):
    """Kernels of weight gradients that take no time."""

    def _weight_gradient(self, op: Linear, how: Quantization | None, sides: Sides) -> Kernels:
        weights = super()._weight_gradient(op, how, sides)
        return [replace(kernel, seconds=0.0 * kernel.seconds) for kernel in weights]


@pytest.mark.parametrize("stack", ["megatron-2021", "megatron-2022", "nemo", "executor-cpu"])
@pytest.mark.parametrize("size", [1, 4])
def test_w_is_what_the_weight_gradients_cost(job: Job, stack: str, size: int) -> None:
    """W costs the weight gradients' own kernels and nothing else of a layer's backward."""
    other = replace(job, software=software(stack))
    plan = with_actions(
        Plan(dp_replicate=8, microbatch_size=size), Schedule.from_csv(HALVES_OF_TWO)
    )
    table = PlanTable.of([plan])
    with_weights, without = (
        coster(other, table).cost(other.model.kinds[0]).backward.kernels[0]
        for coster in (LayerCoster, WithoutWeights)
    )
    counts = layer_counts(other.model, stage_cut(other, table))
    priced = LayerTable.of(other, table)
    weights, _, _ = parts_of_backward(priced, counts, None)
    head = LayerCoster(other, table).cost(other.model.layers[-1]).backward.kernels[0]
    head -= WithoutWeights(other, table).cost(other.model.layers[-1]).backward.kernels[0]
    exact = 12 * (with_weights - without) + head
    assert weights.seconds[1, 0] == pytest.approx(exact, rel=1e-9)


def test_sending_before_w_is_never_slower(job: Job) -> None:
    """W behind I lets the gradient leave earlier; what a rank computes is the same.

    Halves race with their hosts one by one, in which one cannot make up for the other.
    """
    for name in ("1f1b", "naive", "gpipe", "interleaved"):
        plan = PLANS[name]
        whole, split = simulate(job, plan), simulate(job, with_actions(plan, halves(plan)))
        assert split.pipeline_time < whole.pipeline_time
        computed = split.breakdown["backward"] / whole.breakdown["backward"]
        assert 1.0 <= computed < 1.01


def test_a_rank_keeps_activations_until_w(job: Job) -> None:
    early = "0F0,0F1,0I0,0W0,0F2,0I1,0W1,0I2,0W2\n1F0,1I0,1W0,1F1,1I1,1W1,1F2,1I2,1W2\n"
    late = "0F0,0F1,0I0,0F2,0I1,0I2,0W0,0W1,0W2\n1F0,1I0,1W0,1F1,1I1,1W1,1F2,1I2,1W2\n"
    base = Plan(dp_replicate=8)
    two, three = (
        evaluated(job, with_actions(base, Schedule.from_csv(text))) for text in (early, late)
    )
    kept = [entry.memory_of(0).activations[:, 0] for entry in (two, three)]
    assert kept[1][0] == pytest.approx(1.5 * kept[0][0])
    assert kept[1][1] == kept[0][1]
