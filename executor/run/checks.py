"""What is refused before a plan is run: plans, machines, texts and checkpoints that do not go."""

from __future__ import annotations

from executor.devices.capacity import check_world
from executor.devices.machine import DeviceReport
from executor.model.loss import check_trainable
from executor.model.module import check_buildable
from executor.parallel.refused import (
    check_context,
    check_experts,
    check_parallel,
    check_split_backward,
)
from executor.parallel.tensor import check_splits
from executor.pipeline.runnable import check_plan_runnable
from executor.run.run import checkpoints_of
from executor.strategies.train import check_strategy
from executor.training.text import Corpus
from parsim.errors import InputError, PlanError
from parsim.launch.options import RunOptions
from parsim.plan import Plan
from parsim.scenario import Scenario
from parsim.schedule import schedule_of


def check_plan(scenario: Scenario, report: DeviceReport, options: RunOptions) -> None:
    """Refuse a plan that this machine cannot hold, or that would hang or train wrongly.

    Raises:
        ParsimError: saying why, and what is allowed.
    """
    plan, spec = scenario.fixed_plan(), scenario.spec
    check_buildable(spec)
    check_world(plan, report, oversubscribe=options.oversubscribe)
    if scenario.job.mixed:
        raise PlanError(
            f"a cluster of {scenario.job.cluster.words} cannot be run yet: measurement and "
            f"prediction are compared on nodes of one kind; use cluster.system and cluster.nodes"
        )
    check_options(plan, options)
    check_strategy(plan)
    check_parallel(plan)
    check_context(plan, spec, report.kind)
    check_experts(plan, scenario.job.model)
    check_split_backward(plan, schedule_of(plan), experts=spec.num_experts > 0)
    check_plan_runnable(plan, backend=report.backend)
    check_trainable(spec)
    check_splits(spec, plan.tp, sequence_parallel=plan.sequence_parallel)


def check_options(plan: Plan, options: RunOptions) -> None:
    """Refuse checkpoints of a strategy whose workers have states of their own.

    Raises:
        InputError: naming the option.
    """
    asked = options.checkpoint_every or options.resume or options.max_restarts
    if plan.strategy.own_program and asked:
        raise InputError(
            f"--checkpoint-every, --resume and --max-restarts are for strategy ddp; "
            f"{plan.strategy.name} has no checkpoints yet: leave them out"
        )


def check_files(scenario: Scenario, options: RunOptions) -> None:
    """Refuse a text that cannot feed the model, and checkpoints that cannot be gone on from.

    Raises:
        InputError: naming the file.
    """
    corpus = Corpus.load(options.data, tokenizer=options.tokenizer)
    corpus.check(scenario.spec)
    checkpoints_of(scenario, corpus, options, restarts=0).start()
