"""Which cut a plan has that does not say: balanced or by its order, or even where that is best."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from parsim.cost.job import Job
from parsim.cost.legal import illegal
from parsim.cost.step.chain import Chain, Cut
from parsim.cost.step.cuts import (
    CUTS_KEPT,
    Items,
    PlacedStages,
    balanced_cuts,
    short_weights,
    update_seconds,
)
from parsim.cost.step.messages import border_seconds
from parsim.cost.step.stages import even_cut
from parsim.plan import Plan, PlanTable
from parsim.plan.names import AUTO
from parsim.schedule.placement import stage_ranks
from parsim.sim.confidence.memory_fit import Fit
from parsim.sim.cut_descent import Judge, Order, noticed, order_of, sent
from parsim.sim.orders.trial import NAMED, with_named
from parsim.sim.simulate import simulate

CUTS_OF_A_PLAN = 4
"""Cuts that a plan may have at most: the even one, two balanced ones and one by its order."""

CUTS_OF_AUTO = 7
"""Cuts of a plan whose order is found: by orders of 1F1B, Eager-1F1B, ZB-H1 and ZB-H2."""

ROUGH = 1
"""Parts of a layer that an order's cut is found with: fewer plans, and fewer cuts, differ then."""


class Pipeline(NamedTuple):
    """What decides the cuts of a plan beside its layers; it has no `order` where none is judged.

    `named` are those of the schedules with a name that what is found by machine is compared with.
    """

    placed: PlacedStages
    order: Order | None
    named: tuple[Pipeline, ...] = ()


def chooses_cut(job: Job, plan: Plan) -> bool:
    """Whether nothing fixes the plan's cut: neither it, nor its stack, nor unequal nodes."""
    fixed = plan.cut is not None or job.mixed
    return job.software.balanced_cut and plan.pp > 1 and not fixed


def pipeline_of(plan: Plan, update: float = 0.0, message: float = 0.0) -> Pipeline:
    """The stages of a plan on their ranks and in their order, as cuts are found for.

    `update` and `message` are those of the order, as `noticed` and `sent` say.
    """
    ranks, named = tuple(stage_ranks(plan)), tuple[Pipeline, ...]()
    if plan.schedule == AUTO and plan.actions is None:
        others = (pipeline_of(with_named(plan, name), update, message) for name in NAMED)
        named = tuple(dict.fromkeys(others))
    placed = PlacedStages(plan.num_stages, ranks, short_weights(plan))
    return Pipeline(placed, order_of(plan, update, message), named)


@lru_cache(maxsize=CUTS_KEPT)
def likely_cuts(items: Items, pipeline: Pipeline) -> tuple[Cut, ...]:
    """The cuts that may be faster for a plan than the even one: balanced ones, then its order's.

    An order that is found by machine has all cuts of the schedules with a name, than which it is
    never slower then. Leaves out: messages, memory, what is computed again; whether a plan is
    faster with a cut, its step says.
    """
    stages = pipeline.placed.stages
    if not 1 < stages <= items.number:
        return ()
    cuts = balanced_cuts(items.seconds, pipeline.placed)
    if pipeline.order is not None:
        cuts = _with_ordered(items, pipeline.placed, pipeline.order, cuts)
    even = even_cut(items.layers, stages)
    named = (cut for other in pipeline.named for cut in likely_cuts(items, other))
    every = dict.fromkeys((*map(items.of_layers, cuts), *named))
    return tuple(cut for cut in every if cut != even)


def _with_ordered(
    items: Items, placed: PlacedStages, order: Order, balanced: tuple[Cut, ...]
) -> tuple[Cut, ...]:
    """The balanced cuts, or the first and the shortest of them, and the cut of their order.

    The first stays whatever the order says, as its ranks are most alike in memory too: a shorter
    step whose first stages have more layers may not fit.
    """
    rough = items.in_parts(ROUGH)
    lower = _by_order(rough, placed, order)
    if not lower or lower[0] in balanced:
        return balanced
    return (balanced[0], _shortest(rough, placed, order, balanced), *lower)


@lru_cache(maxsize=CUTS_KEPT)
def _shortest(items: Items, placed: PlacedStages, order: Order, cuts: tuple[Cut, ...]) -> Cut:
    """The one of some cuts whose step is shortest by an order."""
    return cuts[0] if len(cuts) == 1 else _judge(items, placed, order).shortest(cuts)


@lru_cache(maxsize=CUTS_KEPT)
def _by_order(items: Items, placed: PlacedStages, order: Order) -> tuple[Cut, ...]:
    """The cut that an order makes of the best of the balanced and the even one, if it is better."""
    begin, even = balanced_cuts(items.seconds, placed), even_cut(items.layers, placed.stages)
    if min(even) > 0:
        begin = (*begin, items.of_items(even))
    lower = _judge(items, placed, order).descended(begin)
    return () if lower is None else (lower,)


def _judge(items: Items, placed: PlacedStages, order: Order) -> Judge:
    """Steps of these items on their stages, by an order."""
    chain = Chain.on(np.frombuffer(items.seconds), placed.ranks, placed.stages)
    return Judge(order, chain, items.shares, np.frombuffer(items.parameters))


def with_better_cut(job: Job, plan: Plan, memory_margin: float | None = None) -> Plan:
    """The plan with the best of its likely cuts, or as it is where none is legal and better.

    What fits goes before what does not, then the shorter step, then the lower peak; a search ranks
    all cuts of a plan by the same, and shows the best one. What is found by machine also has the
    cut of the best schedule with a name, than which it is never slower then.
    """
    if not chooses_cut(job, plan):
        return plan
    others = [replace(plan, stage_layers=cut) for cut in _cuts_of(job, plan)]
    if plan.schedule == AUTO and plan.actions is None:
        others.append(_as_named(job, plan, memory_margin))
    legal = [each for each in others if illegal(job, each) is None]
    if not legal:
        return plan
    return min((*legal, plan), key=lambda each: _rank(job, each, memory_margin))


def _cuts_of(job: Job, plan: Plan) -> tuple[Cut, ...]:
    """The likely cuts of a plan, by its job's seconds."""
    table = PlanTable.of([plan])
    (items,), seconds = Items.of(job, table)
    update = noticed(update_seconds(job, table) / seconds, table.num_microbatches)
    message = sent(border_seconds(job, table) / seconds, table.pp * table.v)
    pipeline = pipeline_of(plan, float(update[0]), float(message[0]))
    return likely_cuts(items, pipeline._replace(named=()))


def _as_named(job: Job, plan: Plan, memory_margin: float | None) -> Plan:
    """The plan with the cut of the best schedule of one stage a rank that has a name."""
    named = [with_better_cut(job, with_named(plan, name), memory_margin) for name in NAMED]
    legal = [each for each in named if illegal(job, each) is None] or [plan]
    best = min(legal, key=lambda each: _rank(job, each, memory_margin))
    return replace(plan, stage_layers=best.stage_layers)


def _rank(job: Job, plan: Plan, memory_margin: float | None) -> tuple[int, float, float]:
    prediction = simulate(job, plan, memory_margin=memory_margin, stacks=False)
    fit = list(Fit).index(prediction.fit)
    return fit, prediction.step_time, prediction.fullest.peak_allocated
