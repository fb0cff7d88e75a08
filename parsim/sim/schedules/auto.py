"""The best order of a plan's own stages that fits its devices: `parsim schedules --auto`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from parsim.arrays import Array
from parsim.cost.job import Job
from parsim.cost.legal import check_legal
from parsim.errors import NoFeasiblePlan, PlanError
from parsim.plan import Plan
from parsim.plan.rules import SPLIT, V_SHAPED
from parsim.schedule import ActionTimes, Kind, Schedule, build_schedule, schedule_of
from parsim.schedule.inflight import inflight_counts
from parsim.schedule.orders.list_order import Work
from parsim.schedule.orders.search import Searched, search_order
from parsim.schedule.orders.split_search import SplitWork, search_split
from parsim.schedule.orders.weight_fill import Rows
from parsim.sim.recurrence.evaluate import Evaluation, evaluate
from parsim.sim.step.schedule_costs import action_seconds

WHOLE = ("1f1b", "eager_1f1b", "gpipe")
"""Named schedules of whole backwards, from which a search begins."""

NAMED = (*WHOLE, *sorted(SPLIT - V_SHAPED))
"""All named schedules of one stage a rank, which the result is compared with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoSchedule:
    """The fastest order found, and what it is compared with; seconds of whole steps.

    `named` are the named schedules of one stage a rank that fit, `found` the orders that were
    searched: "auto" of whole backwards, "auto_split" of backwards in two. `chosen` is the fastest
    of all. `searched` is the search over whole backwards, with its own bound.
    """

    schedule: Schedule
    chosen: str
    step_time: float
    searched: Searched
    limits: tuple[int, ...]
    named: dict[str, float]
    found: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        """Plain data with units in the names."""
        return {
            "chosen": self.chosen,
            "step_time_s": self.step_time,
            "named_step_time_s": dict(self.named),
            "found_step_time_s": dict(self.found),
            "limits_in_microbatches": list(self.limits),
            "gap_to_lower_bound": self.searched.gap,
            "proven": self.searched.proven,
        }


def auto_schedule(job: Job, plan: Plan) -> AutoSchedule:
    """Search for the fastest order of a plan's stages that fits, one stage a rank.

    Raises:
        PlanError: the plan has no pipeline, or is not legal with one stage a rank.
        NoFeasiblePlan: not even one micro-batch in flight fits.
    """
    if plan.pp < 2:
        raise PlanError(f"pp={plan.pp}: the plan has no pipeline to order; use pp >= 2")
    ours = _named(plan, "1f1b")
    check_legal(job, ours)
    evaluation = evaluate(job, ours)
    work = _work(evaluation)
    starts = [schedule_of(_named(plan, name)).ranks for name in WHOLE]
    searched = search_order(work, starts)
    orders = {"auto": searched.rows, "auto_split": _split(job, plan)}
    schedules = {name: Schedule.from_ranks(rows, name="auto.csv") for name, rows in orders.items()}
    searched_times = _fitting(
        job, {name: _written(plan, order) for name, order in schedules.items()}
    )
    named = _fitting(job, {name: _named(plan, name) for name in NAMED})
    times = {**searched_times, **named}
    chosen = min(times, key=lambda name: times[name])
    return AutoSchedule(
        schedule=schedules[chosen] if chosen in schedules else _built(plan, chosen),
        chosen=chosen,
        step_time=times[chosen],
        searched=searched,
        limits=tuple(work.limits),
        named=named,
        found=searched_times,
    )


def _split(job: Job, plan: Plan) -> Rows:
    """The best order of backwards in two, priced as a schedule of one's own is."""
    evaluation = evaluate(job, _written(plan, _built(plan, "zb_h1")))
    seconds = action_seconds(evaluation.step.costs)
    ahead, back, message = _messages(evaluation)
    rows = zip(
        seconds[Kind.F][:, 0] + ahead,
        seconds[Kind.I][:, 0] + back,
        seconds[Kind.W][:, 0],
        strict=True,
    )
    times = [ActionTimes(float(f), float(i), float(w), message) for f, i, w in rows]
    m = plan.num_microbatches
    work = SplitWork(times=times, num_microbatches=m, limits=_limits(evaluation))
    return search_split(work, [_built(plan, name).ranks for name in NAMED]).rows


def _named(plan: Plan, name: str) -> Plan:
    """The plan with a named schedule of one stage a rank."""
    cut = plan.stage_layers if plan.v == 1 else None
    return replace(plan, schedule=name, v=1, stage_layers=cut, actions=None)


def _written(plan: Plan, schedule: Schedule) -> Plan:
    """The plan with an order of its own."""
    return replace(_named(plan, "1f1b"), schedule=schedule.name, actions=schedule.to_csv())


def _built(plan: Plan, name: str) -> Schedule:
    return build_schedule(name, pp=plan.pp, num_microbatches=plan.num_microbatches)


def _fitting(job: Job, plans: Mapping[str, Plan]) -> dict[str, float]:
    """Seconds of the steps of plans that fit the devices."""
    times = {}
    for name, plan in plans.items():
        evaluation = evaluate(job, plan)
        if (evaluation.peak.max(axis=1) <= job.device.usable_memory).all():
            times[name] = evaluation.step_time
    return times


def _messages(evaluation: Evaluation) -> tuple[Array, Array, float]:
    """What messages add to each stage's F and I or B, (p,), and seconds that one takes beside them.

    Where a message keeps its sender's compute stream, it is part of the action that sends it.
    """
    hop = evaluation.step.costs.hop[:, 0].copy()
    hop[-1] = 0.0
    if not evaluation.step.costs.blocking_p2p:
        return np.zeros_like(hop), np.zeros_like(hop), float(hop.max())
    return hop, np.concatenate([[0.0], hop[:-1]]), 0.0


def _limits(evaluation: Evaluation) -> list[int]:
    """Micro-batches in flight for which each rank's device has room.

    One less than by the bytes that a micro-batch keeps, where there is room for more than the
    schedule holds: in another order, buffers may stand at the moment that holds most.

    Raises:
        NoFeasiblePlan: not even one on some rank.
    """
    memory, schedule = evaluation.memory_of(0), evaluation.step.schedule(0)
    in_flight = np.array([max(map(sum, counts)) for counts in inflight_counts(schedule)])
    each = memory.activations[:, 0] / in_flight
    room = evaluation.step.job.device.usable_memory - (memory.peak - memory.activations)[:, 0]
    limits = np.floor(room / np.maximum(each, 1.0)).astype(int)
    if limits.min() < 1:
        raise NoFeasiblePlan(
            f"rank {int(limits.argmin())} has no room for the activations of one micro-batch; use "
            f"a smaller microbatch_size, recomputation, or more ranks"
        )
    spared = np.maximum(limits - 1, np.minimum(limits, in_flight))
    return [int(limit) for limit in np.minimum(spared, schedule.num_microbatches)]


def _work(evaluation: Evaluation) -> Work:
    """The stages' lengths, and how many micro-batches each rank's memory holds."""
    costs, schedule = evaluation.step.costs, evaluation.step.schedule(0)
    ahead, back, message = _messages(evaluation)
    return Work(
        stage_rank=range(schedule.pp),
        num_microbatches=schedule.num_microbatches,
        forward=(costs.forward[:, 0] + ahead).tolist(),
        backward=(costs.backward[:, 0] + back).tolist(),
        limits=_limits(evaluation),
        message=message,
    )
