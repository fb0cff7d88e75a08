"""Runs a plan for some steps on this machine and lays what was measured over the prediction.

Started by torchrun on every rank (`parsim run` does that). Rank 0 writes `run.json`,
`timeline.json` (measured) and `predicted.json` into the output folder.
"""

from __future__ import annotations

import json
import os
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from executor.data import Corpus, batches, replica_rows
from executor.faults import HERE, fatal, writing
from executor.measure import Batch, Spread, Steps, mean_over_ranks, record_step, take_steps
from executor.memory import peak_bytes
from executor.mesh import DeviceReport, coordinates, rank_device, replica_index
from executor.train import Trainer, build_trainer, process_group
from executor.verify import gather_gradients, max_relative_error, reference
from parsim.model.transformer import TransformerSpec
from parsim.plan import Plan
from parsim.scenario import Scenario
from parsim.sim import Prediction, simulate
from parsim.timeline import Timeline
from parsim.validation.quantities import is_action

SCHEMA_VERSION = 1


def run(scenario: Scenario, report: DeviceReport, options: Namespace) -> None:
    """One rank's part of `parsim run`."""
    plan = scenario.fixed_plan()
    device = rank_device(report)
    rank = int(os.environ["RANK"])
    with process_group(report.backend, options.timeout), fatal(options.out, rank):
        spec, corpus = scenario.spec, Corpus.load(options.data)
        corpus.check(spec, spec.seq_len)
        HERE.enter("verify" if options.verify else "build")
        checked = _verify(spec, plan, corpus, device, options.seed) if options.verify else None
        HERE.enter("build")
        trainer = build_trainer(spec, plan, device=device, seed=options.seed)
        _limit_waits(trainer, options.timeout)
        whole = _whole_batches(spec, plan, corpus, options.seed)
        mine = (_share(plan, batch, device) for batch in whole)
        steps = take_steps(trainer, mine, steps=options.steps, warmup=options.warmup, device=device)
        HERE.enter("record", options.warmup + options.steps)
        timeline = record_step(trainer, next(mine), device)
        HERE.enter("memory", options.warmup + options.steps + 1)
        last = next(mine)
        peaks = _gathered(peak_bytes(trainer, device, lambda: trainer.step(*last)))
        if dist.get_rank() == 0 and timeline is not None:
            HERE.enter("write")
            _write(scenario, report, options.out, steps, timeline, peaks, checked)


def _limit_waits(trainer: Trainer, seconds: float) -> None:
    """Torch gives the groups of a mesh its own limit of 10 or 30 minutes, not the default group's.

    Before the first step, so that it holds for every exchange of the steps.
    """
    for group in trainer.mesh.get_all_groups():
        group.set_timeout(timedelta(seconds=seconds))


def _whole_batches(spec: TransformerSpec, plan: Plan, corpus: Corpus, seed: int) -> Iterator[Batch]:
    return batches(
        corpus,
        seed=seed,
        global_batch_size=plan.global_batch_size,
        seq_len=spec.seq_len,
        masked=not spec.causal,
    )


def _share(plan: Plan, batch: Batch, device: torch.device) -> Batch:
    """This replica's rows of a global batch, on its device."""
    rows = replica_rows(plan.global_batch_size, replica_index(plan, dist.get_rank()), plan.dp)
    tokens, targets = batch
    return tokens[rows].to(device), targets[rows].to(device)


def _verify(
    spec: TransformerSpec, plan: Plan, corpus: Corpus, device: torch.device, seed: int
) -> dict[str, Any] | None:
    """Loss and gradients of the first batch against one process with the same seed.

    Without dropout, whose masks depend on the placement. On rank 0; None elsewhere.
    """
    still = replace(spec, dropout=False)
    trainer = build_trainer(still, plan, device=device, seed=seed)
    batch = next(_whole_batches(spec, plan, corpus, seed))
    loss = mean_over_ranks(trainer.gradients(*_share(plan, batch, device)), device)
    gradients = gather_gradients(trainer.replicas, trainer.mesh, plan)
    if dist.get_rank() != 0:
        return None
    tokens, targets = batch
    expected_loss, expected = reference(still, plan, (tokens.to(device), targets.to(device)), seed)
    worst = max_relative_error(gradients, {n: g.cpu() for n, g in expected.items()})
    return {
        "max_gradient_error": worst.error,
        "parameter": worst.parameter,
        "max_loss_error": abs(loss / expected_loss - 1.0),
        "reference": "one process, same seed and batch, fp32, without dropout",
    }


def _gathered(value: float) -> list[float]:
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return [float(one) for one in found]


def _write(
    scenario: Scenario,
    report: DeviceReport,
    folder: Path,
    steps: Steps,
    timeline: Timeline,
    peaks: list[float],
    checked: dict[str, Any] | None,
) -> None:
    predicted = simulate(scenario.job, scenario.fixed_plan(), timeline=True)
    spread = Spread.of(steps.seconds)
    document = run_document(scenario, report, predicted, spread, steps, timeline, peaks, checked)
    meta = {
        **timeline.meta,
        "model": scenario.job.model.name,
        "parameters": scenario.job.model.parameters,
        "system": str(report),
        "plan": predicted.plan.label(),
        "step_time_s": spread.median,
        "spread": {"step_time_s": spread.to_json()},
        "bubble_fraction": document["measured"]["bubble_fraction"],
        "peak_allocated_bytes": by_pipeline_rank(predicted.plan, peaks),
    }
    with writing(folder / "timeline.json") as path:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace(timeline, meta=meta).save(path)
    if predicted.timeline is not None:
        with writing(folder / "predicted.json") as path:
            predicted.timeline.save(path)
    with writing(folder / "run.json") as path:
        path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def run_document(
    scenario: Scenario,
    report: DeviceReport,
    predicted: Prediction,
    spread: Spread,
    steps: Steps,
    timeline: Timeline,
    peaks: list[float],
    checked: dict[str, Any] | None,
) -> dict[str, Any]:
    """The document of `parsim run --json`."""
    plan, job = predicted.plan, scenario.job
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
        },
        "measured": {
            "step_time_s": spread.to_json(),
            "peak_allocated_bytes": peaks,
            "bubble_fraction": bubble_fraction(timeline),
            "tokens_per_s": plan.global_batch_size * job.model.seq_len / spread.median,
            "mfu": flops / capable,
            "loss": list(steps.losses),
        },
        "error": {
            "step_time": predicted.step_time / spread.median - 1.0,
            "peak_memory": highest / max(peaks) - 1.0,
        },
        "verify": checked,
    }


def bubble_fraction(timeline: Timeline) -> float:
    """Idle share of the compute streams between the first and the last action, mean over ranks."""
    actions = [span for span in timeline.spans if is_action(span)]
    begin, end = min(s.start for s in actions), max(s.end for s in actions)
    busy = sum(s.duration for s in actions) / len(timeline.ranks)
    return 1.0 - busy / (end - begin)


def by_pipeline_rank(plan: Plan, peaks: list[float]) -> list[float]:
    """The highest peak among the ranks of each pipeline rank."""
    highest = [0.0] * plan.pp
    for rank, peak in enumerate(peaks):
        at = coordinates(plan, rank)["pp"]
        highest[at] = max(highest[at], peak)
    return highest
