"""Where an expert's tuned plan stands among the plans that a search of the same job finds.

The job (model, cluster, software, batch) is that of a published run. The search looks at what it
looks at for every user with that software; what a run fixes and no search varies (precision,
recomputed modules, overlap) stays as the run has it. Nothing here is fitted, and no run is left
out: one that parsim cannot predict is counted with its reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import mean

from parsim.cost.job import Job
from parsim.errors import NoFeasiblePlan
from parsim.plan import Plan, PlanSpace
from parsim.plan.space import Between
from parsim.planner import search
from parsim.planner.ranked import Ranked
from parsim.planner.result import EvaluatedPlan, ranked_plans
from parsim.planner.search import WHATEVER
from parsim.sim import simulate
from parsim.sim.confidence.memory_fit import Fit
from parsim.validation.step.case import PredictedCase
from parsim.validation.validated_row import ValidatedRow

CLOSE = 0.03
"""An expert's plan that is slower than the best by no more is as good as it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedPlan:
    """A plan of a job by its label, and the mean seconds of its published runs."""

    plan: str
    measured: float
    devices: int
    batch: int

    @property
    def rate(self) -> float:
        """Samples a second for each device."""
        return self.batch / self.devices / self.measured


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedPlan:
    """One plan of a published job, and the best plan that a search of that job finds.

    `rows` are the runs of that plan (releases, repetitions). `best` is None where nothing fits.
    `best_measured` are the measured seconds of the search's plan, where somebody published it too.
    `outrun` is another published plan of the job that ran faster by more than `CLOSE`, `elsewhere`
    one of the same model on the same nodes with another batch and at least as many devices, which
    had so many more samples a second for each.
    `looked` is how many plans the search had.
    """

    rows: tuple[ValidatedRow, ...]
    expert: Ranked
    best: Ranked | None
    best_measured: float | None
    outrun: PublishedPlan | None = None
    elsewhere: PublishedPlan | None = None
    looked: int

    @property
    def measured(self) -> float:
        """Mean measured seconds of the expert's plan."""
        return mean(row.measured_step for row in self.rows if row.measured_step)

    @property
    def slower(self) -> float:
        """By which share the expert's plan is predicted slower than the best; below 0: faster."""
        return self.expert.step_time / self.best.step_time - 1.0 if self.best else -1.0

    @property
    def verdict(self) -> str:
        """One of `VERDICTS`."""
        if self.expert.fit is Fit.TOO_LARGE:
            return "does not fit"
        if self.slower <= 0.0:
            return "first"
        if self.slower <= CLOSE:
            return "within 3 %"
        return "tied" if self.expert.tied else "behind"


VERDICTS = ("first", "within 3 %", "tied", "behind", "does not fit")
"""What may be said of an expert's plan, the best first; the first three are agreement."""
AGREES = VERDICTS[:3]


def judge(rows: Iterable[ValidatedRow]) -> Iterator[JudgedPlan]:
    """Judge each plan of the runs that were predicted and measured, in their order."""
    known = [row for row in rows if row.case is not None and row.measured_step]
    for alike in _runs_of_a_plan(known):
        yield _judged(alike, known)


def _runs_of_a_plan(rows: Sequence[ValidatedRow]) -> list[tuple[ValidatedRow, ...]]:
    """Runs of one job with one plan and one prediction (releases may differ in their recipes)."""
    groups: dict[tuple[object, ...], list[ValidatedRow]] = {}
    for row in rows:
        groups.setdefault((row.decision, row.plan, row.predicted_step), []).append(row)
    return [tuple(alike) for alike in groups.values()]


def _judged(alike: tuple[ValidatedRow, ...], rows: Sequence[ValidatedRow]) -> JudgedPlan:
    """Search the job of an expert's plan, and put both plans in order."""
    case = alike[0].case
    if case is None:
        raise ValueError(f"{alike[0].row_id} was not predicted")
    expert = EvaluatedPlan.of(simulate(case.job, case.plan))
    best, looked = _searched(case)
    measured = _measured(alike[0], best.plan, rows) if best else None
    return JudgedPlan(
        rows=alike,
        expert=_in_order(case.job, expert, best),
        best=best,
        best_measured=measured,
        outrun=outrun(alike, rows),
        elsewhere=elsewhere(alike, rows),
        looked=looked,
    )


def _searched(case: PredictedCase) -> tuple[Ranked | None, int]:
    """The best plan of the job's space, None where nothing fits, and how many were looked at."""
    try:
        result = search(case.job, space_around(case.plan), top=1)
    except NoFeasiblePlan:
        return None, 0
    return result.plans[0], result.counts["enumerated"]


def _in_order(job: Job, expert: EvaluatedPlan, best: Ranked | None) -> Ranked:
    """The expert's plan, ranked beside the best one where there is one."""
    beside = [] if best is None else [as_evaluated(best)]
    pair = sorted([*beside, expert], key=lambda entry: entry.step_time)
    return ranked_plans(job, pair, WHATEVER)[pair.index(expert)]


def space_around(plan: Plan) -> PlanSpace:
    """The stack's whole space, with what no search varies as a plan has it."""
    common = replace(plan, stage_layers=None, action_times=None)
    parts = Between() if plan.dp_shard > 1 < plan.dp_replicate else None
    return PlanSpace(global_batch_size=plan.global_batch_size, common=common, dp_shard=parts)


def as_evaluated(ranked: Ranked) -> EvaluatedPlan:
    """The numbers of a plan of a result."""
    return EvaluatedPlan(
        plan=ranked.plan,
        step_time=ranked.step_time,
        bubble_fraction=ranked.bubble_fraction,
        peak_allocated=ranked.peak_allocated,
        fit=ranked.fit,
        margin=ranked.margin,
    )


def outrun(alike: Sequence[ValidatedRow], rows: Iterable[ValidatedRow]) -> PublishedPlan | None:
    """The fastest other published plan of the same job, where it ran faster by `CLOSE`."""
    job = alike[0].decision
    return _faster(alike, (row for row in rows if row.decision == job))


def elsewhere(alike: Sequence[ValidatedRow], rows: Iterable[ValidatedRow]) -> PublishedPlan | None:
    """The fastest published plan of the model on as many devices or more, with another batch."""
    *of_model, devices, _ = alike[0].decision
    others = (row for row in rows if [*row.decision[:-2]] == of_model)
    jobs = (row for row in others if row.decision != alike[0].decision)
    return _faster(alike, (row for row in jobs if int(row.decision[-2]) >= int(devices)))


def _faster(alike: Sequence[ValidatedRow], rows: Iterable[ValidatedRow]) -> PublishedPlan | None:
    """The fastest of these runs' plans, where it is faster by `CLOSE` for each device."""
    (judged,) = _published(alike)
    others = (each for each in _published(rows) if each.plan != judged.plan)
    fastest = max(others, key=lambda each: each.rate, default=None)
    if fastest is None or fastest.rate <= (1.0 + CLOSE) * judged.rate:
        return None
    return fastest


def _published(rows: Iterable[ValidatedRow]) -> Iterator[PublishedPlan]:
    """All plans that somebody published a run of, those of one job together."""
    times: dict[tuple[str, int, int], list[float]] = {}
    for row in rows:
        if row.case is not None and row.measured_step:
            plan = row.case.plan
            sizes = (plan.world_size, plan.global_batch_size)
            times.setdefault((row.plan, *sizes), []).append(row.measured_step)
    for (label, devices, batch), each in times.items():
        yield PublishedPlan(plan=label, measured=mean(each), devices=devices, batch=batch)


def _measured(job_of: ValidatedRow, plan: Plan, rows: Iterable[ValidatedRow]) -> float | None:
    """Mean measured seconds of a plan of the same job, where somebody published it."""
    label = plan.label()
    every = _published(row for row in rows if row.decision == job_of.decision)
    return next((each.measured for each in every if each.plan == label), None)
