"""Runs a plan for some steps on this machine and lays what was measured over the prediction.

Started by torchrun on every rank (`parsim run` does that). Rank 0 writes `run.json`,
`timeline.json` (measured) and `predicted.json` into the output folder.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from executor.checkpoint.checkpoints import Checkpoints
from executor.checkpoint.record import what_is_trained
from executor.devices.machine import DeviceReport, rank_device
from executor.devices.process_group import gathered, process_group
from executor.faults.diagnosis import tell_restart
from executor.faults.reports import HERE, attempt, fatal, writing
from executor.measure.expert_load import Rows, expert_load, watched
from executor.measure.gradients import gather_gradients
from executor.measure.memory import peak_bytes
from executor.measure.record import PAIRS, record_steps
from executor.measure.steps import Batch, Spread, Steps, known, mean_over_ranks, take_steps
from executor.measure.tolerance import judge
from executor.model.graph import without_dropout
from executor.model.module import Values
from executor.parallel.context import rank_part
from executor.run.summary import present
from executor.training.images import Images
from executor.training.text import Corpus, batches
from executor.training.trainer import build_trainer
from executor.weights.export import export
from executor.weights.published import Published
from parsim.comparison.quantities import quantities_of
from parsim.errors import InputError
from parsim.launch.options import RunOptions
from parsim.model.graph.document import graph_document
from parsim.model.graph.record import Graph
from parsim.model.reader import Description
from parsim.plan import Plan
from parsim.scenario import Scenario
from parsim.sim import Prediction, simulate
from parsim.timelines.timeline import Timeline

SCHEMA_VERSION = 1


def run(scenario: Scenario, report: DeviceReport, options: RunOptions) -> None:
    """One rank's part of `parsim run`."""
    plan = scenario.fixed_plan()
    device = rank_device(report)
    rank = int(os.environ["RANK"])
    with process_group(report.backend, options.timeout), fatal(options.out, rank):
        spec, corpus = scenario.model, feed_of(scenario, options)
        HERE.enter("verify" if options.verify else "build")
        values = Published(options.init_from, scenario.spec) if options.init_from else None
        first = {"device": device, "seed": options.seed, "values": values}
        checked = _verify(spec, plan, corpus, **first) if options.verify else None
        HERE.enter("build")
        trainer = build_trainer(spec, plan, **first)
        # torch gives a mesh's groups its own limit of 10 or 30 minutes, not the default group's
        for group in trainer.groups():
            group.set_timeout(timedelta(seconds=options.timeout))
        HERE.enter("resume")
        # each machine counts only the restarts that began there
        restarts = max(gathered(attempt()))
        checkpoints = checkpoints_of(scenario, corpus, options, restarts)
        before = checkpoints.restore(trainer)
        if rank == 0 and attempt():
            tell_restart(
                options.out,
                plan.world_size,
                options.timeout,
                attempt=attempt(),
                step=len(before),
            )
        whole = _whole_batches(spec, plan, corpus, options.seed, first_step=len(before))
        mine = (_share(spec, plan, batch, device) for batch in whole)
        steps = take_steps(
            trainer,
            mine,
            steps=options.steps,
            warmup=options.warmup,
            device=device,
            before=before,
            after_step=checkpoints.after_step,
        )
        if options.export is not None:
            HERE.enter("export", options.warmup + options.steps)
            export(trainer, scenario.spec, options.export)
        HERE.enter("record", options.warmup + options.steps)
        typical = Spread.of(steps.seconds).median
        timeline = record_steps(trainer, mine, device, typical=typical)
        HERE.enter("memory", options.warmup + options.steps + 2 * PAIRS)
        last = next(mine)
        rows: list[Rows | None] = []
        taken = partial(watched, trainer, lambda: trainer.step(*last))
        peaks = gathered(peak_bytes(trainer, device, lambda: rows.append(taken())))
        load = expert_load(trainer, rows[-1], scenario.job.software.expert_imbalance)
        if dist.get_rank() == 0 and timeline is not None:
            HERE.enter("write")
            steps = replace(steps, restarts=restarts)
            if load is not None:
                timeline = replace(timeline, meta={**timeline.meta, "expert_load": load})
            _write(scenario, report, options.out, options.warmup, steps, timeline, peaks, checked)


Feed = Corpus | Images
"""What a model is trained on."""


def feed_of(scenario: Scenario, options: RunOptions) -> Feed:
    """The text that a transformer reads, checked; images for a graph that takes them.

    Raises:
        InputError: the text cannot feed the model, or a text is given to a graph.
    """
    if isinstance(scenario.model, Graph):
        if options.data is not None or options.tokenizer is not None:
            raise InputError(
                f"{scenario.model.name} takes images, which are made here; leave --data and "
                f"--tokenizer out"
            )
        return Images.of(scenario.model)
    corpus = Corpus.load(options.data, tokenizer=options.tokenizer)
    corpus.check(scenario.model)
    return corpus


def checkpoints_of(
    scenario: Scenario, corpus: Feed, options: RunOptions, restarts: int
) -> Checkpoints:
    """The checkpoints of a run whose ranks were started again so many times."""
    plan, spec = scenario.fixed_plan(), scenario.model
    model = graph_document(spec) if isinstance(spec, Graph) else asdict(spec)
    tokens = corpus.tokens.tobytes() if isinstance(corpus, Corpus) else repr(corpus).encode()
    return Checkpoints(
        root=options.checkpoints or options.out / "checkpoints",
        every=options.checkpoint_every,
        resume=options.resume,
        attempt=restarts,
        trained=what_is_trained(plan.to_json(), plan.label(), model, options.seed, tokens),
        last_step=options.warmup + options.steps,
    )


def _whole_batches(
    spec: Description, plan: Plan, corpus: Feed, seed: int, *, first_step: int = 0
) -> Iterator[Batch]:
    size = plan.global_batch_size
    if isinstance(corpus, Images):
        return corpus.batches(seed=seed, global_batch_size=size, first_step=first_step)
    assert not isinstance(spec, Graph)
    return batches(
        corpus,
        seed=seed,
        global_batch_size=size,
        seq_len=spec.seq_len,
        masked=not spec.causal,
        first_step=first_step,
    )


def _share(spec: Description, plan: Plan, batch: Batch, device: torch.device) -> Batch:
    """This rank's rows and places of a global batch, on its device."""
    tokens, targets = rank_part(spec, plan, dist.get_rank(), batch)
    return tokens.to(device), targets.to(device)


def _verify(
    spec: Description,
    plan: Plan,
    corpus: Feed,
    *,
    device: torch.device,
    seed: int,
    values: Values | None,
) -> dict[str, Any] | None:
    """Loss and gradients of the first batch against one process with the same weights.

    Without dropout, whose masks depend on the placement. On rank 0; None elsewhere.
    """
    still = without_dropout(spec) if isinstance(spec, Graph) else replace(spec, dropout=False)
    trainer = build_trainer(still, plan, device=device, seed=seed, values=values)
    batch = next(_whole_batches(spec, plan, corpus, seed))
    loss = mean_over_ranks(trainer.gradients(*_share(spec, plan, batch, device)), device)
    gradients = gather_gradients(trainer.replicas, trainer.mesh, plan)
    if dist.get_rank() != 0:
        return None
    tokens, targets = batch
    on_device = (tokens.to(device), targets.to(device))
    verdict = judge(still, plan, on_device, seed, loss, gradients, values)
    numbers = {
        name: known(value) if isinstance(value, float) else value
        for name, value in asdict(verdict).items()
    }
    return {**numbers, "within": verdict.within}


def _write(
    scenario: Scenario,
    report: DeviceReport,
    folder: Path,
    warmup: int,
    steps: Steps,
    timeline: Timeline,
    peaks: list[float],
    checked: dict[str, Any] | None,
) -> None:
    margin = scenario.memory_margin
    predicted = simulate(scenario.job, scenario.fixed_plan(), timeline=True, memory_margin=margin)
    spread = Spread.of(steps.seconds)
    document = run_document(scenario, report, predicted, steps, timeline, peaks, checked)
    meta = {
        **timeline.meta,
        "model": scenario.job.model.name,
        "parameters": scenario.job.model.parameters,
        "system": str(report),
        "plan": predicted.plan.label(),
        **(
            {"step_time_s": spread.median, "spread": {"step_time_s": spread.to_json()}}
            if spread.n
            else {}
        ),
        "bubble_fraction": document["measured"]["bubble_fraction"],
        "peak_allocated_bytes": peaks,
    }
    with writing(folder / "timeline.json") as path:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace(timeline, meta=meta).save(path)
    if predicted.timeline is not None:
        with writing(folder / "predicted.json") as path:
            predicted.timeline.save(path)
    with writing(folder / "run.json") as path:
        path.write_text(json.dumps(document, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    present(scenario, document, steps.losses, warmup, folder)


def run_document(
    scenario: Scenario,
    report: DeviceReport,
    predicted: Prediction,
    steps: Steps,
    timeline: Timeline,
    peaks: list[float],
    checked: dict[str, Any] | None,
) -> dict[str, Any]:
    """The document of `parsim run --json`; null where too few steps were left to time."""
    plan, job = predicted.plan, scenario.job
    spread, load = Spread.of(steps.seconds), timeline.meta.get("expert_load")
    highest = max(predicted.peak_allocated)
    flops = job.model.step_flops(plan.global_batch_size)
    capable = spread.median * predicted.peak_flops * plan.world_size
    return {
        "schema_version": SCHEMA_VERSION,
        "plan": plan.to_json(),
        "device": str(report),
        "backend": report.backend,
        "predicted": {
            "step_time_s": predicted.step_time,
            "peak_allocated_bytes": list(predicted.peak_allocated),
            "memory_fit": predicted.fit.value,
            **predicted.margin.to_json(),
        },
        "measured": {
            "step_time_s": spread.to_json(),
            "peak_allocated_bytes": peaks,
            "bubble_fraction": bubble_fraction(timeline),
            "recording_cost": timeline.meta["recording_cost"],
            "tokens_per_s": known(plan.global_batch_size * job.model.tokens / spread.median),
            **({"tokens_of_sample": 1} if job.model.tokens == 1 else {}),
            "mfu": known(flops / capable),
            "loss": [known(loss) for loss in steps.losses],
            "lost_on_ranks": list(steps.lost_on),
            "restarts": steps.restarts,
            **({} if load is None else {"expert_load": load}),
        },
        "error": {
            "step_time": known(predicted.step_time / spread.median - 1.0),
            "peak_memory": highest / max(peaks) - 1.0,
        },
        "verify": checked,
    }


def bubble_fraction(timeline: Timeline) -> float:
    """Idle share of the compute streams between the first and the last action, mean over ranks."""
    measured = quantities_of(timeline, {rank: (rank,) for rank in timeline.ranks})
    return measured.step["bubble_fraction"]
