"""Which cut a plan has that does not say: a balanced one, where no slower than the even one."""

from __future__ import annotations

from dataclasses import replace

from parsim.cost.job import Job
from parsim.cost.legal import illegal
from parsim.cost.step.cuts import PlacedStages, balanced_cuts, short_weights
from parsim.plan import Plan, PlanTable
from parsim.schedule.placement import stage_ranks
from parsim.sim.confidence.memory_fit import Fit
from parsim.sim.simulate import simulate


def chooses_cut(job: Job, plan: Plan) -> bool:
    """Whether nothing fixes the plan's cut: neither it, nor its stack, nor unequal nodes."""
    fixed = plan.cut is not None or job.mixed
    return job.software.balanced_cut and plan.pp > 1 and not fixed


def placed_stages(plan: Plan) -> PlacedStages:
    """The stages of a plan on their ranks, as cuts are found for."""
    return PlacedStages(plan.num_stages, tuple(stage_ranks(plan)), short_weights(plan))


def with_better_cut(job: Job, plan: Plan, memory_margin: float | None = None) -> Plan:
    """The plan with a balanced cut, or as it is where that would be illegal or no better.

    What fits goes before what does not, then the shorter step, then the lower peak; a search ranks
    all cuts of a plan by the same, and shows the best one.
    """
    if not chooses_cut(job, plan):
        return plan
    (cuts,) = balanced_cuts(job, PlanTable.of([plan]), [(0, placed_stages(plan))])
    balanced = [replace(plan, stage_layers=cut) for cut in cuts]
    legal = [each for each in balanced if illegal(job, each) is None]
    if not legal:
        return plan
    return min((*legal, plan), key=lambda each: _rank(job, each, memory_margin))


def _rank(job: Job, plan: Plan, memory_margin: float | None) -> tuple[int, float, float]:
    prediction = simulate(job, plan, memory_margin=memory_margin, stacks=False)
    fit = list(Fit).index(prediction.fit)
    return fit, prediction.step_time, prediction.fullest.peak_allocated
