"""What is refused before a plan is run: plans, machines, texts and checkpoints that do not go."""

from __future__ import annotations

from executor.devices.capacity import check_world
from executor.devices.machine import DeviceReport
from executor.faults.messages import say
from executor.model.graph.modules import check_cut
from executor.model.loss import check_trainable
from executor.model.module import check_buildable
from executor.model.stage import has_experts, layer_count
from executor.parallel.refused import (
    check_context,
    check_experts,
    check_parallel,
    check_split_backward,
    check_splits,
)
from executor.pipeline.runnable import check_plan_runnable
from executor.run.part import feeds
from executor.run.run import checkpoints_of
from executor.run.stage_tasks.run import check_pipeline
from executor.strategies.train import check_off_cpu, check_strategy
from executor.weights.export import check_export
from executor.weights.published import Published
from parsim.cost.step.stages import plan_cut
from parsim.errors import InputError, PlanError
from parsim.launch.options import RunOptions
from parsim.model.graph.record import Graph
from parsim.plan import Plan
from parsim.scenario import Scenario
from parsim.schedule import schedule_of


def check_plan(scenario: Scenario, report: DeviceReport, options: RunOptions) -> None:
    """Refuse a plan that this machine cannot hold, or that would hang or train wrongly.

    Raises:
        ParsimError: saying why, and what is allowed.
    """
    check_buildable(scenario.model)
    _check_cluster(scenario, report, options)
    plan = scenario.fixed_plan()
    check_options(plan, options)
    check_strategy(plan)
    if report.kind != "cpu":
        check_off_cpu(plan)
    if plan.strategy.one_process and report.nodes > 1:
        raise PlanError(f"strategy.name={plan.strategy.name} is one process; leave --nnodes out")
    if plan.runs_as_tasks:
        check_pipeline(scenario, report.kind)
        check_trainable(scenario.model)
    else:
        _check_schedule_of_actions(scenario, report)


def _check_cluster(scenario: Scenario, report: DeviceReport, options: RunOptions) -> None:
    """Refuse more ranks than the machine has, and a prediction for nodes of several kinds."""
    check_world(scenario.fixed_plan(), report, oversubscribe=options.oversubscribe)
    if scenario.job.mixed:
        raise PlanError(
            f"a cluster of {scenario.job.cluster.words} cannot be run yet: measurement and "
            f"prediction are compared on nodes of one kind; use cluster.system and cluster.nodes"
        )


def _check_schedule_of_actions(scenario: Scenario, report: DeviceReport) -> None:
    """Refuse what a plan of one step by a schedule's actions cannot train."""
    plan, spec = scenario.fixed_plan(), scenario.model
    check_parallel(plan)
    check_context(plan, spec, report.kind)
    check_experts(plan, scenario.job.model)
    check_split_backward(plan, schedule_of(plan), experts=has_experts(spec))
    check_plan_runnable(plan, backend=report.backend)
    check_trainable(spec)
    if isinstance(spec, Graph):
        check_cut(spec, plan_cut(plan, layer_count(spec)))
    else:
        check_splits(spec, plan.tp, sequence_parallel=plan.sequence_parallel)


def check_options(plan: Plan, options: RunOptions) -> None:
    """Refuse options that a strategy with workers of its own does not have.

    Raises:
        InputError: naming them.
    """
    names = ["checkpoint_every", "resume", "max_restarts", "export"]
    asked = [f"--{name.replace('_', '-')}" for name in names if getattr(options, name)]
    if plan.strategy.own_program and asked:
        raise InputError(
            f"{' and '.join(asked)} cannot go with strategy {plan.strategy.name} yet, whose "
            f"workers have weights of their own; leave out, or use strategy ddp"
        )
    asked += ["--eval-every"] if options.eval_every else []
    if plan.strategy.sharers > 1 and asked:
        raise InputError(
            f"{' and '.join(asked)} cannot go with strategy {plan.strategy.name} yet, where no "
            f"rank has the whole model; leave out, or use strategy ddp"
        )
    if plan.runs_as_tasks and asked:
        raise InputError(
            f"{' and '.join(asked)} cannot go with schedule={plan.schedule!r} and these stages "
            f"yet; leave out, or use schedule='1f1b' without stages"
        )


def check_files(scenario: Scenario, options: RunOptions) -> None:
    """Refuse a text that cannot feed the model, and weights that it cannot start or go on from.

    Raises:
        InputError: naming the file.
    """
    feed, _ = feeds(scenario, options)
    checkpoints_of(
        scenario, feed, options, restarts=0, tell=lambda text: say(f"note: {text}")
    ).start()
    if options.init_from is not None:
        Published(options.init_from, scenario.spec).check()
    if options.export is not None:
        check_export(options.export, scenario.spec)
