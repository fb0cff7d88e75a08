"""A scenario's plan with every schedule in turn: seconds and bytes instead of units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from parsim.cost.job import Job
from parsim.cost.legal import check_legal
from parsim.errors import PlanError
from parsim.plan import Plan
from parsim.plan.names import AUTO
from parsim.schedule import schedule_of
from parsim.sim.cuts import with_better_cut
from parsim.sim.orders.auto import ordered
from parsim.sim.schedules.asynchronous import AsynchronousRow, planned_row
from parsim.sim.schedules.rows import InSeconds, ScheduleRow, ScheduleTable
from parsim.sim.schedules.table import Shape, chunks_of, compared
from parsim.sim.simulate import simulate
from parsim.sim.stages.run import TaskRun
from parsim.timelines.timeline import ACTIONS, Timeline

CHUNKS = 2
"""Chunks a rank of schedules that may have any number, where nothing is said."""


def planned_table(
    job: Job,
    plan: Plan,
    *,
    v: int | None = None,
    only: Sequence[str] = (),
    memory_margin: float | None = None,
) -> ScheduleTable:
    """Compare all schedules that a plan may have, in seconds and bytes, and the order found for it.

    Args:
        job: model, cluster, software.
        plan: of which all but the schedule, its chunks and its cut stay as they are.
        v: chunks a rank of the schedules that may have any number of them; without, the plan's own
            schedule has those of the plan, others two.
        only: names of schedules; all where empty.
        memory_margin: as of `simulate`.

    Raises:
        PlanError: the plan has no pipeline.
        InputError: a name is none, the plan may have no schedule of them, or there is too much to
            simulate.
    """
    if plan.pp < 2:
        raise PlanError(f"pp={plan.pp}: the plan has no pipeline to schedule; use pp >= 2")

    def chunks(name: str) -> int:
        return _chunks(plan, name, v)

    return compared(
        Shape(plan.pp, plan.num_microbatches, chunks),
        lambda name: _row(job, _with_schedule(plan, name, chunks(name)), memory_margin),
        lambda rule: _late_row(job, plan, rule),
        only=only,
        unit="s",
        title=f"{job.model.name}, tp{plan.tp} pp{plan.pp} dp{plan.dp}, "
        f"{plan.num_microbatches} micro-batches of {plan.microbatch_size}",
        searched=(AUTO,),
    )


def _late_row(job: Job, plan: Plan, rule: str) -> AsynchronousRow:
    """The plan without flush, as `simulate` runs it."""
    never = _with_schedule(plan, rule, 1)
    check_legal(job, never)
    return planned_row(TaskRun(job, never))


def _chunks(plan: Plan, name: str, v: int | None) -> int:
    """Chunks a rank of a schedule beside those that the plan has with its own."""
    unchanged = v is None and name == plan.schedule and plan.actions is None
    return plan.v if unchanged else chunks_of(name, CHUNKS if v is None else v)


def _row(job: Job, plan: Plan, memory_margin: float | None) -> ScheduleRow:
    ours = ordered(job, with_better_cut(job, plan, memory_margin), memory_margin)
    prediction = simulate(job, ours, timeline=True, memory_margin=memory_margin)
    if prediction.timeline is None:
        raise RuntimeError("simulate returned no timeline")
    spans = (span for span in prediction.timeline.spans if span.kind in ACTIONS)
    row = ScheduleRow.of(
        schedule_of(ours), Timeline(spans=tuple(spans), meta={"plan": plan.schedule})
    )
    return replace(
        row,
        name=plan.schedule,
        bubble_fraction=prediction.bubble_fraction,
        in_seconds=InSeconds(
            step_time=prediction.step_time,
            peak_allocated=prediction.fullest.peak_allocated,
            fit=str(prediction.fit),
        ),
    )


def _with_schedule(plan: Plan, name: str, chunks: int) -> Plan:
    """The plan with another schedule; a cut is for as many stages, of others none is stated."""
    cut = plan.stage_layers if chunks == plan.v else None
    return replace(plan, schedule=name, v=chunks, stage_layers=cut, actions=None)
