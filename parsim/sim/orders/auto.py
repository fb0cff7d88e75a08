"""`schedule: auto`: the best order of a plan's own stages that fits its devices.

Searched are orders of whole backwards and of backwards in two, with the seconds of the plan's
stages and the micro-batches for which its devices have room. The named schedules of one stage a
rank are simulated beside them, and the fastest of all that may be run and fit is taken (else of
those that are tight, else the smallest): never a slower one than those. Stages with replicas or
tensor degrees of their own have whole backwards, and 1F1B as the schedule with a name. Equal input
gives equal output, for actions are counted and no clock is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from parsim.cost.job import Job
from parsim.cost.legal import check_legal, illegal
from parsim.errors import PlanError
from parsim.plan import Plan
from parsim.plan.names import AUTO
from parsim.schedule.orders.search import Searched
from parsim.schedule.orders.work import Work
from parsim.sim.orders.trial import ROUNDING, Trial, named_of, rows_of, with_named, with_order
from parsim.sim.orders.works import of_stages, split, whole
from parsim.sim.recurrence.evaluate import evaluate


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoSchedule:
    """The fastest order found, and what it is compared with; seconds of whole steps.

    `named` are the named schedules of one stage a rank that fit as well, `orders` those that
    were searched: "auto" of whole backwards, "auto_split" of backwards in two. `chosen` is the
    fastest of all, and `plan` the plan with its actions. `searched` are the searches by the same
    names, each with its own bound.
    """

    plan: Plan
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
        elif self.named[best] <= self.step_time * (1.0 + ROUNDING):
            gain = f"an order of its own, as fast as {best}, the best named one, with less memory"
        else:
            share = 100.0 * (self.named[best] / self.step_time - 1.0)
            gain = f"an order of its own; {best}, the best named one, takes {share:.2g} % longer"
        sure = "proven shortest" if self.proven else f"at most {100.0 * self.gap:.2f} % too long"
        return f"schedule={AUTO}: {gain}; the pipeline's order is {sure} under its limits of memory"

    def to_json(self) -> dict[str, Any]:
        """Plain data with units in the names."""
        return {
            "chosen": self.chosen,
            "stage_layers": list(self.plan.cut) if self.plan.cut else None,
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
    trial = Trial(job, plan, memory_margin)
    for name in named_of(plan):
        trial.take(name, rows_of(plan, name))
    works = _works(trial)
    searched = {name: trial.search(name, work, seconds) for name, work in works.items()}
    chosen = trial.best()
    named = {name: trial.times[name] for name in named_of(plan) if trial.as_good(name, chosen)}
    return AutoSchedule(
        plan=trial.ordered(chosen),
        chosen=chosen,
        step_time=trial.times[chosen],
        searched=searched,
        limits=tuple(works["auto"].limits),
        named=named,
        orders={name: trial.times[name] for name in works if trial.as_good(name, chosen)},
    )


def _works(trial: Trial) -> dict[str, Work]:
    """What is searched for by name: orders of whole backwards, and of those in two if it may be."""
    job, plan = trial.job, trial.plan
    first = with_named(plan, "1f1b")
    if plan.stages is not None:
        from parsim.sim.stages.run import TaskRun  # events, which few plans need

        return {"auto": of_stages(TaskRun(job, first), trial.capacity)}
    works = {"auto": whole(evaluate(job, first), trial.capacity)}
    halves = with_order(plan, rows_of(plan, "zb_h1"))
    if illegal(job, halves) is None:
        works["auto_split"] = split(evaluate(job, halves), trial.capacity)
    return works
