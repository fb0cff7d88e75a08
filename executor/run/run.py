"""Runs a plan for some steps on this machine and lays what was measured over the prediction.

Started by torchrun on every rank (`parsim run` does that). Rank 0 writes `predicted.json` before
the first step, `steps.jsonl` during them, `run.json` and `timeline.json` (measured) at the end.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import islice
from typing import Any

import torch
import torch.distributed as dist

from executor.checkpoint.checkpoints import Checkpoints
from executor.checkpoint.record import what_is_trained
from executor.devices.all_ranks import gathered
from executor.devices.machine import DeviceReport
from executor.faults.diagnosis import tell_restart
from executor.faults.reports import HERE, tell
from executor.measure.expert_load import Rows, expert_load, watched
from executor.measure.memory import peak_bytes
from executor.measure.record import PAIRS, record_steps
from executor.measure.steps import Spread, Step, Steps, take_steps
from executor.model.loss import Batch
from executor.run.document import Measured, measured_hardware, run_document
from executor.run.evaluation import BATCHES, Evaluation
from executor.run.part import Feed, RankPart
from executor.run.results import named, save_results
from executor.run.start import Start, started
from executor.run.step_log import StepLog
from executor.training.build import build_trainer
from executor.training.samples import Corpus
from executor.training.trainer import Trainer
from executor.training.update_rule import OptimizerConfig, Rate
from executor.weights.export import export
from parsim.launch.options import RunOptions
from parsim.launch.watch import attempt
from parsim.model.graph.document import graph_document
from parsim.model.graph.record import Graph
from parsim.scenario import Scenario
from parsim.sim import Prediction


def run(scenario: Scenario, report: DeviceReport, options: RunOptions) -> None:
    """One rank's part of `parsim run`."""
    with started(scenario, report, options) as start:
        part = RankPart.of(scenario, options, start.device)
        HERE.enter("verify" if options.verify else "build")
        checked = part.verify() if options.verify else None
        trainer = _built(part)
        before, checkpoints = _restored(scenario, options, part.feed, trainer)
        mine = part.batches(first_step=len(before))
        steps, evaluations = _train(part, trainer, mine, before, checkpoints)
        if options.export is not None:
            HERE.enter("export", options.last_step)
            export(trainer, scenario.spec, options.export)
        HERE.enter("record", options.last_step)
        typical = Spread.of(steps.seconds).median
        timeline = record_steps(trainer, mine, start.device, typical=typical)
        HERE.enter("memory", options.last_step + 2 * PAIRS)
        peaks, load = _peaks(trainer, next(mine), start.device, scenario)
        if start.predicted is not None and timeline is not None:
            HERE.enter("write")
            if load is not None:
                timeline = replace(timeline, meta={**timeline.meta, "expert_load": load})
            measured = Measured(steps, timeline, peaks, checked, evaluations)
            _write(start, start.predicted, measured)


def _built(part: RankPart) -> Trainer:
    HERE.enter("build")
    options = part.options
    trainer = build_trainer(
        part.scenario.model,
        part.scenario.fixed_plan(),
        device=part.device,
        seed=options.seed,
        optimizer=optimizer_of(part.scenario, options),
        values=part.values,
        backend=part.backend,
    )
    # torch gives a mesh's groups its own limit of 10 or 30 minutes, not the default group's
    for group in trainer.groups():
        group.set_timeout(datetime.timedelta(seconds=options.timeout))
    return trainer


def optimizer_of(scenario: Scenario, options: RunOptions) -> OptimizerConfig:
    """The optimizer that the scenario names, at the rates that the options ask for."""
    rate = Rate(
        peak=options.learning_rate,
        warmup=options.lr_warmup,
        decay=options.lr_decay,
        steps=options.last_step,
    )
    return OptimizerConfig(name=scenario.job.optimizer.name, clip=scenario.job.clip, rate=rate)


def _restored(
    scenario: Scenario, options: RunOptions, feed: Feed, trainer: Trainer
) -> tuple[Sequence[float], Checkpoints]:
    """Go on from a checkpoint, if there is one to; the losses before it, and all checkpoints."""
    HERE.enter("resume")
    # each machine counts only the restarts that began there
    checkpoints = checkpoints_of(
        scenario,
        feed,
        options,
        restarts=max(gathered(attempt())),
        tell=partial(tell, options.out, "checkpoint"),
    )
    before = checkpoints.restore(trainer)
    if dist.get_rank() == 0 and attempt():
        ranks, timeout = scenario.fixed_plan().world_size, options.timeout
        tell_restart(options.out, ranks, timeout, attempt=attempt(), step=len(before))
    return before, checkpoints


def _train(
    part: RankPart,
    trainer: Trainer,
    mine: Iterator[Batch],
    before: Sequence[float],
    checkpoints: Checkpoints,
) -> tuple[Steps, dict[int, float]]:
    """Take all steps, with their log, evaluations and checkpoints.

    Returns the losses of evaluations too, by the number of steps before.
    """
    options = part.options
    evaluation = Evaluation(
        every=options.eval_every,
        trainer=trainer,
        device=part.device,
        batches=tuple(islice(part.evaluation(), BATCHES)),
    )
    log = _log_of(part, checkpoints.attempt)

    def after_step(step: Step, losses: Sequence[float]) -> None:
        loss = evaluation.after_step(len(losses))
        if dist.get_rank() == 0:
            log.add(step, loss)
        checkpoints.after_step(trainer, losses)

    steps = take_steps(
        trainer,
        mine,
        steps=options.steps,
        warmup=options.warmup,
        device=part.device,
        before=before,
        after_step=after_step,
    )
    return replace(steps, restarts=checkpoints.attempt), evaluation.losses


def _log_of(part: RankPart, attempt: int) -> StepLog:
    """The log of a run that was started again so many times."""
    tokens = part.scenario.job.model.tokens
    return StepLog(
        folder=part.options.out,
        tokens=part.scenario.fixed_plan().global_batch_size * tokens,
        steps=part.options.last_step,
        restart=attempt,
        samples=tokens == 1,
    )


def _write(start: Start, predicted: Prediction, measured: Measured) -> None:
    """Write `run.json` and the timeline, on rank 0, which has the prediction."""
    scenario, report, options = start.scenario, start.report, start.options
    document = run_document(scenario, report, predicted, measured, start.meta())
    hardware = measured_hardware(report, scenario.fixed_plan().world_size)
    steps = measured.steps
    timeline = named(measured.timeline, scenario, document, steps, hardware)
    save_results(scenario, options.out, document, steps.losses, options.warmup, timeline)


def _peaks(
    trainer: Trainer, batch: Batch, device: torch.device, scenario: Scenario
) -> tuple[list[float], dict[str, Any] | None]:
    """Bytes at the peak of every rank's step; how even the load of experts was, if any."""
    rows: list[Rows | None] = []
    taken = partial(watched, trainer, lambda: trainer.step(*batch))
    peaks = gathered(peak_bytes(trainer, device, lambda: rows.append(taken())))
    return peaks, expert_load(trainer, rows[-1], scenario.job.software.expert_imbalance)


def checkpoints_of(
    scenario: Scenario,
    feed: Feed,
    options: RunOptions,
    restarts: int,
    tell: Callable[[str], None],
) -> Checkpoints:
    """The checkpoints of a run whose ranks were started again so many times; `tell` gets notes."""
    plan, spec = scenario.fixed_plan(), scenario.model
    model = graph_document(spec) if isinstance(spec, Graph) else asdict(spec)
    tokens = feed.tokens.tobytes() if isinstance(feed, Corpus) else repr(feed).encode()
    trained = what_is_trained(
        *(plan, model, options.seed, tokens),
        optimizer=scenario.job.optimizer.name,
        held_out=isinstance(feed, Corpus) and options.eval_every > 0,
    )
    return Checkpoints(
        root=options.checkpoints or options.out / "checkpoints",
        every=options.checkpoint_every,
        resume=options.resume,
        attempt=restarts,
        trained=trained,
        last_step=options.last_step,
        tell=tell,
    )
