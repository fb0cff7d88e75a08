"""Predict one plan: the front door of the simulator.

Drawing, discrete events, strategies and pipelines as tasks are imported where a plan asks for them:
a search, which has none of them, starts a twentieth of a second earlier.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Literal

import numpy as np

from parsim.cluster.hardware import System
from parsim.cost.coverage import coverage_notes
from parsim.cost.jitter import Jitter
from parsim.cost.job import Job
from parsim.cost.legal import check_legal
from parsim.cost.recorded import recorded_notes
from parsim.cost.software import Software
from parsim.cost.step.offload import offload_note
from parsim.errors import InputError
from parsim.plan import Plan, precision
from parsim.plan.layout_axes import in_axes
from parsim.sim.confidence.known_errors import Sizes
from parsim.sim.confidence.memory_fit import Fit, fit_of, margin_of, worst
from parsim.sim.confidence.memory_spread import MemorySpread, UnstatedBytes, plan_spread, unstated
from parsim.sim.drawing.spans import device_span
from parsim.sim.fullest import FullestRank
from parsim.sim.memory.activation_parts import activation_parts, has_room, host_bytes
from parsim.sim.memory.reserved import reserved_bytes
from parsim.sim.orders.auto import ordered
from parsim.sim.plan_interval import plan_interval, plan_standings
from parsim.sim.prediction import Prediction, RankUse
from parsim.sim.rank_use import groups_of_rank, rank_uses
from parsim.sim.recurrence.evaluate import ROUNDING, Evaluation, evaluate
from parsim.sim.step.lanes import has_classes
from parsim.sim.step.priced_step import plan_shape
from parsim.sim.step_breakdown import breakdown, source_notes
from parsim.sim.utilisation import SimulatorError, mean_peak_flops, recomputed_flops
from parsim.timelines.timeline import Timeline

__all__ = ("SimulatorError", "guard", "plan_shape", "simulate")

Tier = Literal["evaluate", "events"]
EVENTS_ALONE = (
    "discrete events alone answer this strategy: there is nothing to compare their time with"
)
"""What is said instead of how well two tiers agree."""

UNMEASURED = (
    "nodes of different kinds: no measured run of such a cluster is among parsim's rows, so that "
    "the interval is that of clusters of each kind alone"
)


def simulate(
    job: Job,
    plan: Plan,
    *,
    timeline: bool = False,
    tier: Tier = "evaluate",
    memory_margin: float | None = None,
    jitter: Jitter | None = None,
) -> Prediction:
    """Predict step time, bubble, memory and utilisation of one plan.

    Args:
        job: model, cluster, software.
        plan: a legal plan; see `parsim.cost.legal.check_legal`. A layout of a transformer is taken
            as the plan of axes that it is.
        timeline: also build the timeline (times of every action, memory curves, critical path).
        tier: "evaluate" is the max-plus recurrence; "events" also runs the step in simpy and
            refuses to answer where the two differ.
        memory_margin: share of the usable memory that must stay free for the plan to fit; None:
            what the predicted peak may be wrong by.
        jitter: how workers differ, for strategies in which it matters who comes first; its slow
            ranks in any case; None: the usual spreads.

    Raises:
        PlanError: the plan is not legal.
        InputError: a slow rank that the plan has not, or that its stages or strategy leave out.
        SimulatorError: a guard found a bug of parsim.
    """
    plan = in_axes(plan, job.model)
    check_legal(job, plan)
    plan = ordered(job, plan, memory_margin)
    if plan.runs_own_program:
        return _of_strategy(job, plan, timeline, memory_margin, tier, jitter)
    if plan.runs_as_tasks:
        _slow_ranks(plan, jitter)
        return _as_tasks(job, plan, timeline, memory_margin, tier)
    evaluation = evaluate(job, plan, keep=True, slow_ranks=_slow_ranks(plan, jitter))
    guard(evaluation)
    prediction = _prediction(evaluation, memory_margin)
    if plan.strategy.own_program:
        from parsim.sim.data_parallel.predict import figures_of_all_reduce

        figures = figures_of_all_reduce(evaluation, plan, prediction)
        prediction = replace(prediction, strategy=figures)
    if tier == "events":
        from parsim.sim.events.step_run import events_step_time

        checked = _check_tiers(evaluation.step_time, events_step_time(evaluation.step))
        prediction = replace(prediction, checked=checked)
    if not timeline:
        return prediction
    from parsim.sim.drawing.timeline import build_timeline

    return replace(prediction, timeline=build_timeline(evaluation))


def _as_tasks(
    job: Job, plan: Plan, timeline: bool, memory_margin: float | None, tier: Tier
) -> Prediction:
    """Predict a plan whose actions are tasks, from the plan whose stages are alike."""
    from parsim.sim.stages.plan_prices import alike
    from parsim.sim.stages.predict import prediction_of, tier_times
    from parsim.sim.stages.run import TaskRun

    run = TaskRun(job, plan)
    evaluation = evaluate(run.job, alike(run.plan, tp=max(run.plan.stage_tp)), keep=True)
    guard(evaluation)
    checked = _check_tiers(*tier_times(run)) if tier == "events" else ""
    prediction = prediction_of(run, _prediction(evaluation, memory_margin))
    prediction = replace(prediction, checked=checked)
    return _with_drawing(prediction, run.timeline()) if timeline else prediction


def _of_strategy(
    job: Job,
    plan: Plan,
    timeline: bool,
    memory_margin: float | None,
    tier: Tier,
    jitter: Jitter | None,
) -> Prediction:
    """Predict a plan with a program of its own, from its step with all-reduced gradients."""
    from parsim.sim.data_parallel.drawn import strategy_timeline
    from parsim.sim.data_parallel.pace import tier_times
    from parsim.sim.data_parallel.predict import prediction_of
    from parsim.sim.data_parallel.priced_strategy import PricedStrategy

    slow_ranks = _slow_ranks(plan, jitter)
    evaluation = evaluate(job, plan.whole_models, keep=True, slow_ranks=slow_ranks)
    guard(evaluation)
    strategy = PricedStrategy.of(evaluation, plan)
    jitter = jitter and jitter.without("slow_ranks")  # they are in the prices
    prediction = prediction_of(strategy, _prediction(evaluation, memory_margin), jitter)
    if tier == "events":
        alone = strategy.priced.program.depends_on_arrival
        checked = EVENTS_ALONE if alone else _check_tiers(*tier_times(strategy.priced))
        prediction = replace(prediction, checked=checked)
    if not timeline:
        return prediction
    return _with_drawing(prediction, strategy_timeline(strategy, jitter))


def _slow_ranks(plan: Plan, jitter: Jitter | None) -> tuple[tuple[int, float], ...]:
    """The ranks that are listed as slow, which the plan has.

    Raises:
        InputError: it has them not, or the way in which the plan is simulated knows no slow ranks.
    """
    if jitter is None or not jitter.slow_ranks:
        return ()
    jitter.check(plan.world_size)
    if plan.runs_as_tasks or plan.strategy.sharers > 1:
        what = "stages as tasks" if plan.runs_as_tasks else f"strategy {plan.strategy.name}"
        raise InputError(
            f"jitter.slow_ranks={dict(jitter.slow_ranks)} is not simulated with {what}; leave it "
            f"out, or take a plan whose ranks each hold a stage or a whole model"
        )
    return jitter.slow_ranks


def _with_drawing(prediction: Prediction, drawn: Timeline) -> Prediction:
    """The prediction with a drawing of its first steps, which says the predicted step time.

    What is drawn may begin with a fill, or lack the allowance for late ranks.
    """
    meta = {**drawn.meta, "step_time_s": prediction.step_time}
    return replace(prediction, timeline=replace(drawn, meta=meta))


def guard(evaluation: Evaluation) -> None:
    """Refuse impossible results: makespan below the busiest rank, negative bubble or memory.

    Raises:
        SimulatorError: which of these it is.
    """
    slack = evaluation.clock.max(axis=0) - evaluation.busy.max(axis=0)
    if (slack < -ROUNDING * evaluation.pipeline_time).any() or evaluation.bubble_fraction < 0:
        raise SimulatorError("negative bubble: the pipeline ends before its busiest rank")
    if any((memory.peak < memory.static).any() for memory in evaluation.memory.values()):
        raise SimulatorError("peak memory is below static memory")


def _check_tiers(recurrence: float, events: float) -> str:
    """Refuse two times of one step, seconds, that differ by more than sums round; else say how far.

    Raises:
        SimulatorError: they differ by more.
    """
    apart = abs(events / recurrence - 1.0)
    if apart > ROUNDING:
        raise SimulatorError(f"tiers disagree: events {events!r} s, recurrence {recurrence!r} s")
    within = f"within {apart:.1g} of it" if apart else "to the last digit"
    words = f"discrete events and the recurrence agree on the step time {within}"
    return f"{words} ({ROUNDING:.0e} of it is allowed)"


def _prediction(evaluation: Evaluation, memory_margin: float | None) -> Prediction:
    """Put all together, with what follows: throughput, utilisation, their intervals."""
    step, seconds, bubble = evaluation.step, evaluation.step_time, evaluation.bubble_fraction
    job, plan, uses = step.job, step.plan, rank_uses(evaluation)
    kind, fullest = _fullest(evaluation, uses)
    memory, parts = evaluation.memory_of(kind), breakdown(evaluation)
    standings = plan_standings(evaluation, parts)
    margin = margin_of(job, plan, memory_margin)
    words = [fit_of(job.software, use.peak_allocated, use.usable, margin.share) for use in uses]
    hosts = _hosts(evaluation)
    words += [] if all(has_room(system, used) for system, used in hosts) else [Fit.TOO_LARGE]
    highest = evaluation.peak.max(axis=1)
    model_flops = float(job.model.step_flops(plan.global_batch_size))
    peak_flops = mean_peak_flops(job, plan)
    capable = seconds * peak_flops * plan.world_size
    by_rank = tuple(memory.at(rank, 0) for rank in range(plan.pp))
    spread = _memory_spread(job.software, plan, standings[0].sizes, by_rank[fullest.rank])
    return Prediction(
        plan=plan,
        step_time=seconds,
        interval=plan_interval(evaluation, standings),
        standing=standings[0],
        pipeline_time=evaluation.pipeline_time,
        tokens_per_second=plan.global_batch_size * job.model.tokens / seconds,
        speed_unit=job.model.speed_unit,
        mfu=model_flops / capable,
        hfu=(model_flops + recomputed_flops(job, plan)) / capable,
        peak_flops=peak_flops,
        bubble_fraction=bubble,
        bubble_overhead=bubble / (1.0 - bubble),
        device_span=device_span(evaluation),
        breakdown=parts,
        peak_allocated=tuple(float(size) for size in highest),
        peak_reserved=tuple(float(size) for size in reserved_bytes(job.software, highest)),
        memory=by_rank[fullest.rank],
        memory_by_rank=by_rank,
        activations=_activations(evaluation, kind, fullest.rank),
        peak_interval=spread.interval(fullest.peak_allocated),
        memory_evidence=spread.evidence,
        memory_basis=spread.basis,
        fullest=fullest,
        fit=worst(words),
        margin=margin,
        notes=_notes(evaluation),
        host_bytes=hosts[0][1],
        host_memory=hosts[0][0].host_memory,
        rank_uses=uses if has_classes(step) else (),
    )


def _memory_spread(
    software: Software, plan: Plan, sizes: Sizes, use: Mapping[str, float]
) -> MemorySpread:
    """How sure the peak of the fullest rank is, whose memory by category is `use`."""
    wide = plan.gradient_precision == "fp32"
    assumed = UnstatedBytes(
        gradients=use["gradients"],
        logits=use["logits"],
        width=4.0 if wide else float(precision(plan.precision).parameter),
    )
    return unstated(plan_spread(software, plan, sizes), software, assumed)


def _fullest(evaluation: Evaluation, uses: tuple[RankUse, ...]) -> tuple[int, FullestRank]:
    """The class of replicas whose memory is fullest, and the rank of it."""
    use = max(uses, key=lambda use: use.peak_allocated / use.usable)
    kind = int(evaluation.step.classes.class_of[use.replicas[0]])
    groups = groups_of_rank(evaluation, use.pipeline_rank, kind)
    device = min((group.system.device for group in groups), key=lambda device: device.usable_memory)
    software = evaluation.step.job.software
    return kind, FullestRank(
        rank=use.pipeline_rank,
        devices=use.devices,
        groups=use.groups,
        peak_allocated=use.peak_allocated,
        peak_reserved=float(reserved_bytes(software, np.array(use.peak_allocated))),
        context=device.context_memory,
        capacity=device.memory,
    )


def _hosts(evaluation: Evaluation) -> list[tuple[System, float]]:
    """Each kind of node with the bytes in its hosts, of the class that keeps the most there."""
    step = evaluation.step
    used = {}
    for group, system in step.systems().items():
        table, layers = step.pricing.table, step.pricing.layers(group)
        by_class = [
            host_bytes(step.job_on(group), table, layers, evaluation.memory_of(c), step.schedule(c))
            for c in range(step.num_classes)
        ]
        used[group] = (system, float(max(float(size[0]) for size in by_class)))
    return sorted(used.values(), key=lambda host: host[1] / (host[0].host_memory or inf))[::-1]


def _activations(evaluation: Evaluation, kind: int, rank: int) -> dict[str, float]:
    """What keeps the activations of a pipeline rank of a class of replicas, bytes."""
    step = evaluation.step
    group = step.group(0)
    return activation_parts(
        step.job_on(group),
        step.pricing.table,
        step.pricing.layers(group),
        evaluation.memory_of(kind),
        step.schedule(kind),
        rank,
    )


def _notes(evaluation: Evaluation) -> tuple[str, ...]:
    """Where the constants came from, kind by kind, and what was not measured."""
    step = evaluation.step
    systems = step.job.cluster.systems
    coverage = [
        note for group in step.systems() for note in coverage_notes(step.job_on(group), step.plan)
    ]
    unmeasured = (UNMEASURED,) if len({system.id for system in systems}) > 1 else ()
    sources = source_notes(systems, step.job.software)
    recorded = [
        note
        for system in systems
        for note in recorded_notes(system.device, step.job.model.name, step.plan)
    ]
    copies = [offload_note(system) for system in systems] if step.plan.offload_layers else []
    return (*sources, *dict.fromkeys(recorded), *dict.fromkeys(coverage), *unmeasured, *copies)
