"""`schedule: auto`: the best order of a plan's own stages that fits its devices.

Searched are orders of whole backwards and of backwards in two, with the seconds of the plan's
stages and the micro-batches for which its devices have room. The named schedules of one stage a
rank are simulated beside them, and the fastest of all that may be run and fit is taken (else of
those that are tight, else the smallest): never a slower one than those. Equal input gives equal
output, for actions are counted and no clock is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from parsim.arrays import Array
from parsim.cost.job import Job
from parsim.cost.legal import check_legal, illegal
from parsim.errors import PlanError
from parsim.plan import Plan
from parsim.plan.names import AUTO
from parsim.schedule import Kind, Schedule
from parsim.schedule.inflight import inflight_counts
from parsim.schedule.orders.search import Searched
from parsim.schedule.orders.work import Work
from parsim.sim.confidence.memory_fit import margin_of
from parsim.sim.orders.trial import NAMED, Trial, built, with_named, with_order
from parsim.sim.recurrence.evaluate import Evaluation, evaluate
from parsim.sim.step.schedule_costs import action_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoSchedule:
    """The fastest order found, and what it is compared with; seconds of whole steps.

    `named` are the named schedules of one stage a rank that fit as well, `orders` those that
    were searched: "auto" of whole backwards, "auto_split" of backwards in two. `chosen` is the
    fastest of all, and `plan` the plan with its actions. `searched` are the searches by the same
    names, each with its own bound.
    """

    plan: Plan
    schedule: Schedule
    chosen: str
    step_time: float
    searched: Mapping[str, Searched]
    limits: tuple[int, ...]
    named: Mapping[str, float]
    orders: Mapping[str, float]

    @property
    def gap(self) -> float:
        """The most by which another order could end a pipeline earlier: of the freest search."""
        return self.searched[list(self.searched)[-1]].gap

    @property
    def proven(self) -> bool:
        """Whether no order of the freest search is shorter."""
        return self.searched[list(self.searched)[-1]].proven

    def words(self) -> str:
        """What was chosen, its gain over the best named schedule, and how far it may be off."""
        best = min(self.named, key=lambda name: self.named[name], default=None)
        if self.chosen in self.named:
            gain = f"the named {self.chosen}, than which nothing faster was found"
        elif best is None:
            gain = "an order of its own; no named schedule fits"
        else:
            share = 100.0 * (self.named[best] / self.step_time - 1.0)
            gain = f"an order of its own; {best}, the best named one, takes {share:.2g} % longer"
        sure = "proven shortest" if self.proven else f"at most {100.0 * self.gap:.2f} % too long"
        return f"schedule={AUTO}: {gain}; the pipeline's order is {sure} under its limits of memory"

    def to_json(self) -> dict[str, Any]:
        """Plain data with units in the names."""
        return {
            "chosen": self.chosen,
            "stage_layers": list(self.plan.stage_layers) if self.plan.stage_layers else None,
            "step_time_s": self.step_time,
            "named_step_time_s": dict(self.named),
            "found_step_time_s": dict(self.orders),
            "limits_in_microbatches": list(self.limits),
            "gap_to_lower_bound": self.gap,
            "proven": self.proven,
        }


def ordered(job: Job, plan: Plan, memory_margin: float | None = None) -> Plan:
    """The plan with the actions that its `schedule: auto` stands for; any other as it is.

    Raises:
        PlanError: the plan is not legal with one stage a rank.
    """
    if plan.schedule != AUTO or plan.actions is not None or plan.pp == 1:
        return plan
    return auto_schedule(job, plan, memory_margin).plan


def auto_schedule(
    job: Job, plan: Plan, memory_margin: float | None = None, seconds: float | None = None
) -> AutoSchedule:
    """Search for the fastest order of a plan's stages that fits, one stage a rank.

    Args:
        job: model, software, a cluster of one kind of node.
        plan: of which all but the schedule stays as it is.
        memory_margin: as of `simulate`.
        seconds: for each of the searches; None: as many actions as `search_order` takes.

    Raises:
        InputError: the nodes are of several kinds.
        PlanError: the plan has no pipeline, or is not legal with one stage a rank.
    """
    if plan.pp < 2:
        raise PlanError(f"pp={plan.pp}: the plan has no pipeline to order; use pp >= 2")
    check_legal(job, with_named(plan, "1f1b"))
    trial = Trial(job, plan, margin_of(job, with_named(plan, "1f1b"), memory_margin))
    for name in NAMED:
        trial.take(name, built(plan, name))
    works = {"auto": _whole(evaluate(job, with_named(plan, "1f1b")), trial.capacity)}
    halves = with_order(plan, built(plan, "zb_h1"))
    if illegal(job, halves) is None:
        works["auto_split"] = _split(evaluate(job, halves), trial.capacity)
    searched = {name: trial.search(name, work, seconds) for name, work in works.items()}
    chosen = trial.best()
    return AutoSchedule(
        plan=with_order(plan, trial.schedules[chosen]),
        schedule=trial.schedules[chosen],
        chosen=chosen,
        step_time=trial.times[chosen],
        searched=searched,
        limits=tuple(works["auto"].limits),
        named={name: trial.times[name] for name in NAMED if trial.as_good(name, chosen)},
        orders={name: trial.times[name] for name in works if trial.as_good(name, chosen)},
    )


def _messages(evaluation: Evaluation) -> tuple[Array, Array, float]:
    """What messages add to each stage's F and I or B, (p,), and seconds that one takes beside them.

    Where a message keeps its sender's compute stream, it is part of the action that sends it.
    """
    hop = evaluation.step.costs.hop[:, 0].copy()
    hop[-1] = 0.0
    if not evaluation.step.costs.blocking_p2p:
        return np.zeros_like(hop), np.zeros_like(hop), float(hop.max())
    return hop, np.concatenate([[0.0], hop[:-1]]), 0.0


def _limits(evaluation: Evaluation, capacity: float) -> tuple[int, ...]:
    """Micro-batches in flight for which each rank has room in so many bytes, one at the least.

    One less than by the bytes that a micro-batch keeps, where there is room for more than the
    schedule holds: in another order, buffers may stand at the moment that holds most. As many as
    the schedule holds where the peak is the update's, which has none.
    """
    memory, schedule = evaluation.memory_of(0), evaluation.step.schedule(0)
    in_flight = np.array([max(map(sum, counts)) for counts in inflight_counts(schedule)])
    each = memory.activations[:, 0] / in_flight
    room = capacity - (memory.peak - memory.activations)[:, 0]
    limits = np.maximum(np.floor(room / np.maximum(each, 1.0)).astype(int), 1)
    limits = np.where(each > 0.0, limits, in_flight)
    spared = np.maximum(limits - 1, np.minimum(limits, in_flight))
    return tuple(np.minimum(spared, schedule.num_microbatches).tolist())


def _whole(evaluation: Evaluation, capacity: float) -> Work:
    """The stages' lengths with whole backwards, and what each rank's memory holds."""
    costs, schedule = evaluation.step.costs, evaluation.step.schedule(0)
    ahead, back, message = _messages(evaluation)
    return Work(
        stage_rank=range(schedule.pp),
        num_microbatches=schedule.num_microbatches,
        forward=tuple((costs.forward[:, 0] + ahead).tolist()),
        backward=tuple((costs.backward[:, 0] + back).tolist()),
        limits=_limits(evaluation, capacity),
        message=message,
    )


def _split(evaluation: Evaluation, capacity: float) -> Work:
    """This work with backwards in two, priced as in a user's schedule."""
    seconds = action_seconds(evaluation.step.costs)
    _, back, _ = _messages(evaluation)
    return replace(
        _whole(evaluation, capacity),
        backward=tuple((seconds[Kind.I][:, 0] + back).tolist()),
        weight=tuple(seconds[Kind.W][:, 0].tolist()),
    )
