"""Unequal stages beside the best equal plans: the least bound first, simulated until none is left.

Candidates wait in order of their bounds: a division of the devices, which is cut when its turn
comes, then its plan, which is simulated with as little recomputation as fits. Those whose bound is
behind the last of the plans that are wanted cannot be among them.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple

from parsim.cost.job import Job
from parsim.plan import Plan, PlanSpace, Recompute
from parsim.plan.names import AUTO
from parsim.plan.rules.degrees import divisors, tensor_degrees, tensor_rules
from parsim.plan.space import chosen
from parsim.planner.limits import allowed, in_order
from parsim.planner.result import EvaluatedPlan
from parsim.planner.unequal.candidates import Family
from parsim.planner.unequal.divisions import Division
from parsim.sim.prediction import Prediction
from parsim.sim.simulate import simulate


def evaluated_fitting(job: Job, plan: Plan, space: PlanSpace) -> EvaluatedPlan | None:
    """The plan as it is, else with half, else with all layers of its full stages recomputed.

    None where a space does not allow any of these.
    """
    for share in (0.5, 1.0, None):
        ready = in_order(job, space, plan)
        prediction = simulate(job, ready, memory_margin=space.memory_margin)
        if allowed(prediction, space):
            return EvaluatedPlan.of(prediction)
        if share is None or Recompute.FULL not in space.recompute:
            return None
        plan = _recomputing(plan, prediction, share, room_of(job, space))
    return None


def _recomputing(plan: Plan, prediction: Prediction, share: float, usable: float) -> Plan:
    """The plan with a share of the layers of those stages recomputed that are not the emptiest."""
    room = usable * (1.0 - prediction.margin.share)
    stages = [
        replace(stage, recompute_layers=-int(-share * stage.layers // 1)) if peak > room else stage
        for stage, peak in zip(plan.stages or (), prediction.peak_allocated, strict=True)
    ]
    return replace(plan, stages=tuple(stages))


def room_of(job: Job, space: PlanSpace) -> float:
    """Bytes of a device beside its context that a plan of a space may use."""
    cap = inf if space.memory_cap is None else space.memory_cap
    return min(job.usable_memory, cap)


MOST_ALIKE = 4
"""Pairs of tensor-parallel ranks and micro-batch that are looked at, those of the best plans."""


def families(job: Job, space: PlanSpace, plans: Sequence[Plan]) -> Iterator[Family]:
    """What may stand in place of plans: stages of their degree, and stages of several."""
    searched = AUTO in (space.schedule or ())
    like, room = list(_alike(plans, AUTO if searched else "1f1b")), room_of(job, space)
    for plan in like:
        yield Family.of(job, plan, (plan.tp,), room)
    first: dict[int, Plan] = {}
    for plan in like:
        first.setdefault(plan.microbatch_size, plan)
    for plan in first.values():
        degrees = _stage_degrees(job, space, plan)
        if len(degrees) > 1:
            yield Family.of(job, plan, degrees, room)


def _stage_degrees(job: Job, space: PlanSpace, plan: Plan) -> list[int]:
    """The tensor-parallel degrees of the space that a stage inside a node may have.

    They need not divide the devices, as one degree of all stages must.
    """
    model, cluster = job.model, job.cluster
    usual = {*divisors(cluster.num_devices), *tensor_degrees(model)}
    alone = replace(plan, sequence_parallel=False)
    legal = [
        tp
        for tp in sorted(usual)
        if tp <= job.system.devices_per_node
        and tensor_rules(replace(alone, tp=tp), model, cluster) is None
    ]
    return [tp for tp in legal if tp in chosen(space.tp, legal)]


def _alike(plans: Iterable[Plan], schedule: str) -> Iterator[Plan]:
    """The first plan of each pair, with nothing recomputed or moved to the host, in their order."""
    first: dict[tuple[int, int], Plan] = {}
    for plan in plans:
        first.setdefault((plan.tp, plan.microbatch_size), plan)
    for plan in list(first.values())[:MOST_ALIKE]:
        yield replace(
            plan,
            schedule=schedule,
            recompute=Recompute.NONE,
            recompute_modules=(),
            recompute_layers=0,
            offload_layers=0,
            offload_modules=(),
        )


MOST_SIMULATED = 24
"""Plans with unequal stages that are simulated."""


@dataclass(slots=True)
class Funnel:
    """What became of the divisions of the devices; those not looked at are `left`.

    `unfit` ones need too much memory, or idle too long. `whole` says whether all were listed.
    """

    divisions: int = 0
    illegal: int = 0
    unfit: int = 0
    slower: int = 0
    evaluated: int = 0
    left: int = 0
    whole: bool = True

    def counts(self) -> dict[str, int]:
        """What a search's result has of them, by name."""
        names = ("illegal", "unfit", "slower", "evaluated", "left")
        return {
            "unequal_plans": self.divisions,
            **{f"unequal_{name}": getattr(self, name) for name in names},
        }

    def words(self) -> str:
        """What is proven of them."""
        what = f"{self.divisions:,} plans with unequal stages, as the partitioner cuts them"
        if self.left:
            return f"{what}: {self.left:,} of them were not looked at, of which nothing is proven"
        some = "" if self.whole else ", not all there are"
        return f"{what}{some}: the others are slower by a lower bound or do not fit"


class Waiting(NamedTuple):
    """A candidate in its turn: `plan` is None until its division is cut."""

    bound: float
    number: int
    family: Family
    division: Division
    plan: Plan | None = None


@dataclass(slots=True)
class Judge:
    """Looks at candidates, the least bound first, until the wanted plans are known.

    `best` are the equal plans, the fastest first, `wanted` how many plans are wanted in all.
    """

    job: Job
    space: PlanSpace
    best: Sequence[EvaluatedPlan]
    wanted: int
    fitting: list[EvaluatedPlan] = field(default_factory=list)
    simulated: int = 0
    funnel: Funnel = field(default_factory=Funnel)

    def run(self, those: Iterable[Family], until: float) -> None:
        """Look at the candidates of families, till no further one is begun."""
        waiting = self._waiting(those)
        slowest = self._slowest()
        while waiting and waiting[0].bound <= slowest:
            if self.simulated >= MOST_SIMULATED or time.perf_counter() > until:
                self.funnel.left = sum(entry.bound <= slowest for entry in waiting)
                break
            self._look_at(heapq.heappop(waiting), waiting)
            slowest = self._slowest()
        self.funnel.slower = len(waiting) - self.funnel.left

    def _waiting(self, those: Iterable[Family]) -> list[Waiting]:
        """All divisions in order of their bounds."""
        waiting: list[Waiting] = []
        for family in those:
            self.funnel.whole &= family.divisions.whole
            self.funnel.unfit += family.divisions.unfit
            for division in family.divisions.some:
                waiting.append(Waiting(family.bound(division), len(waiting), family, division))
        self.funnel.divisions = len(waiting) + self.funnel.unfit
        heapq.heapify(waiting)
        return waiting

    def _slowest(self) -> float:
        """The step of the last plan that is wanted, of those known so far; inf of too few."""
        steps = sorted(entry.step_time for entry in (*self.best, *self.fitting))
        return steps[self.wanted - 1] if self.wanted <= len(steps) else inf

    def _look_at(self, entry: Waiting, waiting: list[Waiting]) -> None:
        """Cut a division, or simulate the plan that was made of it."""
        if entry.plan is not None:
            self._simulate(entry.plan)
            return
        bound, least, plan = entry.family.candidate(entry.division)
        if plan is None:
            self.funnel.illegal += 1
        elif least > room_of(self.job, self.space):
            self.funnel.unfit += 1
        else:
            heapq.heappush(waiting, entry._replace(bound=max(bound, entry.bound), plan=plan))

    def _simulate(self, plan: Plan) -> None:
        self.simulated += 1
        evaluated = evaluated_fitting(self.job, plan, self.space)
        if evaluated is None:
            self.funnel.unfit += 1
        else:
            self.funnel.evaluated += 1
            self.fitting.append(evaluated)


def unequal_plans(
    job: Job, space: PlanSpace, best: Sequence[EvaluatedPlan], wanted: int, until: float
) -> tuple[list[EvaluatedPlan], Funnel]:
    """The plans with unequal stages among the best that fit, and what became of all.

    Args:
        job: model, devices of one kind, software.
        space: which tensor-parallel degrees, and what a plan must leave free to fit.
        best: the equal plans, the fastest first.
        wanted: how many plans are asked for, of both kinds.
        until: `time.perf_counter` after which no further plan is begun.
    """
    judge = Judge(job, space, best, wanted)
    judge.run(families(job, space, [entry.plan for entry in best]), until)
    return judge.fitting, judge.funnel
