"""Backwards in two parts: what each takes and keeps."""

from __future__ import annotations

from dataclasses import replace

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
from parsim.sim import simulate
from parsim.sim.step.backward_in_two import parts_of_backward
from parsim.sim.step.schedule_costs import action_seconds, exposed_seconds
from tests.parsim.sim.conftest import PLANS
from tests.parsim.sim.step.planned import evaluated, with_actions

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
