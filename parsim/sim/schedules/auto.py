"""The best order of a plan's own stages that fits its devices: `parsim schedules --auto`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from parsim.cost.job import Job
from parsim.cost.legal import check_legal
from parsim.errors import NoFeasiblePlan, PlanError
from parsim.plan import Plan
from parsim.plan.rules import SPLIT, V_SHAPED
from parsim.schedule import Schedule, build_schedule, schedule_of
from parsim.schedule.inflight import inflight_counts
from parsim.schedule.orders.list_order import Work
from parsim.schedule.orders.search import Searched, search_order
from parsim.sim.recurrence.evaluate import Evaluation, evaluate

WHOLE = ("gpipe", "1f1b", "eager_1f1b")
"""Named schedules of whole backwards, from which a search begins."""

NAMED = (*WHOLE, *sorted(SPLIT - V_SHAPED))
"""All named schedules of one stage a rank, which the result is compared with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoSchedule:
    """The fastest order found, and what it is compared with; seconds of whole steps.

    `named` are the named schedules of one stage a rank that fit. `chosen` is the name of the best
    of them where no order found is faster, else "auto". `searched` is the search over orders of
    whole backwards, with its own bound.
    """

    schedule: Schedule
    chosen: str
    step_time: float
    searched: Searched
    limits: tuple[int, ...]
    named: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        """Plain data with units in the names."""
        return {
            "chosen": self.chosen,
            "step_time_s": self.step_time,
            "named_step_time_s": dict(self.named),
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
    schedule = Schedule.from_ranks(searched.rows, name="auto.csv")
    named = _fitting(job, plan)
    times = {"auto": evaluate(job, _written(plan, schedule)).step_time, **named}
    chosen = min(times, key=lambda name: times[name])
    return AutoSchedule(
        schedule=schedule if chosen == "auto" else _built(plan, chosen),
        chosen=chosen,
        step_time=times[chosen],
        searched=searched,
        limits=tuple(work.limits),
        named=named,
    )


def _named(plan: Plan, name: str) -> Plan:
    """The plan with a named schedule of one stage a rank."""
    cut = plan.stage_layers if plan.v == 1 else None
    return replace(plan, schedule=name, v=1, stage_layers=cut, actions=None)


def _written(plan: Plan, schedule: Schedule) -> Plan:
    """The plan with an order of its own."""
    return replace(_named(plan, "1f1b"), schedule=schedule.name, actions=schedule.to_csv())


def _built(plan: Plan, name: str) -> Schedule:
    return build_schedule(name, pp=plan.pp, num_microbatches=plan.num_microbatches)


def _fitting(job: Job, plan: Plan) -> dict[str, float]:
    """Seconds of the named schedules that fit the devices."""
    times = {}
    for name in NAMED:
        evaluation = evaluate(job, _named(plan, name))
        if (evaluation.peak.max(axis=1) <= job.device.usable_memory).all():
            times[name] = evaluation.step_time
    return times


def _work(evaluation: Evaluation) -> Work:
    """The stages' lengths, and how many micro-batches each rank's memory holds.

    Where a message keeps its sender's compute stream, it is part of the action that sends it.
    """
    costs, memory = evaluation.step.costs, evaluation.memory_of(0)
    hop = costs.hop[:, 0].copy()
    hop[-1] = 0.0
    back = np.concatenate([[0.0], hop[:-1]])
    blocking = costs.blocking_p2p
    schedule = evaluation.step.schedule(0)
    held = np.array([max(map(sum, counts)) for counts in inflight_counts(schedule)])
    each = memory.activations[:, 0] / held
    room = evaluation.step.job.device.usable_memory - (memory.peak - memory.activations)[:, 0]
    limits = np.floor(room / np.maximum(each, 1.0)).astype(int)
    if limits.min() < 1:
        raise NoFeasiblePlan(
            f"rank {int(limits.argmin())} has no room for the activations of one micro-batch; use "
            f"a smaller microbatch_size, recomputation, or more ranks"
        )
    return Work(
        stage_rank=range(schedule.pp),
        num_microbatches=schedule.num_microbatches,
        forward=(costs.forward[:, 0] + (hop if blocking else 0.0)).tolist(),
        backward=(costs.backward[:, 0] + (back if blocking else 0.0)).tolist(),
        limits=np.minimum(limits, schedule.num_microbatches).tolist(),
        message=0.0 if blocking else float(hop.max()),
    )
