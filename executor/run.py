"""Runs a plan for some steps on this machine and lays what was measured over the prediction.

Started by torchrun on every rank (`parsim run` does that). Rank 0 writes `run.json`,
`timeline.json` (measured) and `predicted.json` into the output folder.
"""

from __future__ import annotations

import json
import os
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from executor.checkpoint import Checkpoints
from executor.checkpoint_record import what_is_trained
from executor.data import Corpus, batches
from executor.faults import HERE, fatal, writing
from executor.load import Rows, expert_load, watched
from executor.measure import Batch, Spread, Steps, known, mean_over_ranks, take_steps
from executor.memory import peak_bytes
from executor.mesh import DeviceReport, rank_device
from executor.parallel.context import own_part
from executor.present import present
from executor.record import PAIRS, record_steps
from executor.restart import agreed_attempt, tell_restart
from executor.tolerance import judge
from executor.train import Trainer, build_trainer, process_group
from executor.verify import gather_gradients
from parsim.model.transformer import TransformerSpec
from parsim.plan import Plan
from parsim.scenario import Scenario
from parsim.sim import Prediction, simulate
from parsim.timeline import Timeline
from parsim.validation.quantities import quantities_of

SCHEMA_VERSION = 1


def run(scenario: Scenario, report: DeviceReport, options: Namespace) -> None:
    """One rank's part of `parsim run`."""
    plan = scenario.fixed_plan()
    device = rank_device(report)
    rank = int(os.environ["RANK"])
    with process_group(report.backend, options.timeout), fatal(options.out, rank):
        spec, corpus = scenario.spec, Corpus.load(options.data, tokenizer=options.tokenizer)
        corpus.check(spec)
        HERE.enter("verify" if options.verify else "build")
        checked = _verify(spec, plan, corpus, device, options.seed) if options.verify else None
        HERE.enter("build")
        trainer = build_trainer(spec, plan, device=device, seed=options.seed)
        _limit_waits(trainer, options.timeout)
        HERE.enter("resume")
        checkpoints = _checkpoints(scenario, corpus, options)
        before = checkpoints.restore(trainer)
        tell_restart(options.out, options.timeout, len(before))
        whole = _whole_batches(spec, plan, corpus, options.seed, first_step=len(before))
        mine = (_share(spec, plan, batch, device) for batch in whole)
        steps = take_steps(
            trainer, mine, steps=options.steps, warmup=options.warmup, device=device,
            before=before, after_step=checkpoints.after_step,
        )  # fmt: skip
        HERE.enter("record", options.warmup + options.steps)
        typical = Spread.of(steps.seconds).median
        timeline = record_steps(trainer, mine, device, typical=typical)
        HERE.enter("memory", options.warmup + options.steps + 2 * PAIRS)
        last = next(mine)
        rows: list[Rows | None] = []
        taken = partial(watched, trainer, lambda: trainer.step(*last))
        peaks = _gathered(peak_bytes(trainer, device, lambda: rows.append(taken())))
        load = expert_load(trainer, rows[-1], scenario.job.software.expert_imbalance)
        if dist.get_rank() == 0 and timeline is not None:
            HERE.enter("write")
            steps = replace(steps, restarts=checkpoints.attempt)
            if load is not None:
                timeline = replace(timeline, meta={**timeline.meta, "expert_load": load})
            _write(scenario, report, options.out, options.warmup, steps, timeline, peaks, checked)


def _limit_waits(trainer: Trainer, seconds: float) -> None:
    """Torch gives the groups of a mesh its own limit of 10 or 30 minutes, not the default group's.

    Before the first step, so that it holds for every exchange of the steps.
    """
    for group in trainer.groups():
        group.set_timeout(timedelta(seconds=seconds))


def _checkpoints(scenario: Scenario, corpus: Corpus, options: Namespace) -> Checkpoints:
    return Checkpoints(
        root=options.checkpoints or options.out / "checkpoints",
        every=options.checkpoint_every,
        resume=options.resume,
        attempt=agreed_attempt(),
        trained=trained_here(scenario, corpus, options.seed),
        last_step=options.warmup + options.steps,
    )


def trained_here(scenario: Scenario, corpus: Corpus, seed: int) -> dict[str, Any]:
    """What a checkpoint of this run belongs to."""
    plan, model = scenario.fixed_plan(), asdict(scenario.spec)
    tokens = corpus.tokens.tobytes()
    return what_is_trained(plan.to_json(), plan.label(), model, seed, tokens)


def _whole_batches(
    spec: TransformerSpec, plan: Plan, corpus: Corpus, seed: int, *, first_step: int = 0
) -> Iterator[Batch]:
    return batches(
        corpus,
        seed=seed,
        global_batch_size=plan.global_batch_size,
        seq_len=spec.seq_len,
        masked=not spec.causal,
        first_step=first_step,
    )


def _share(spec: TransformerSpec, plan: Plan, batch: Batch, device: torch.device) -> Batch:
    """This rank's rows and places of a global batch, on its device."""
    tokens, targets = own_part(spec, plan, dist.get_rank(), batch)
    return tokens.to(device), targets.to(device)


def _verify(
    spec: TransformerSpec, plan: Plan, corpus: Corpus, device: torch.device, seed: int
) -> dict[str, Any] | None:
    """Loss and gradients of the first batch against one process with the same seed.

    Without dropout, whose masks depend on the placement. On rank 0; None elsewhere.
    """
    still = replace(spec, dropout=False)
    trainer = build_trainer(still, plan, device=device, seed=seed)
    batch = next(_whole_batches(spec, plan, corpus, seed))
    loss = mean_over_ranks(trainer.gradients(*_share(spec, plan, batch, device)), device)
    gradients = gather_gradients(trainer.replicas, trainer.mesh, plan)
    if dist.get_rank() != 0:
        return None
    tokens, targets = batch
    on_device = (tokens.to(device), targets.to(device))
    found = judge(still, plan, on_device, seed, loss, gradients)
    numbers = {
        name: known(value) if isinstance(value, float) else value
        for name, value in asdict(found).items()
    }
    return {**numbers, "within": found.within}


def _gathered(value: float) -> list[float]:
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return [float(one) for one in found]


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
    predicted = simulate(scenario.job, scenario.fixed_plan(), timeline=True)
    spread = Spread.of(steps.seconds)
    document = run_document(scenario, report, predicted, spread, steps, timeline, peaks, checked)
    meta = {
        **timeline.meta,
        "model": scenario.job.model.name,
        "parameters": scenario.job.model.parameters,
        "system": str(report),
        "plan": predicted.plan.label(),
        **({"step_time_s": spread.median, "spread": {"step_time_s": spread.to_json()}}
           if spread.n else {}),
        "bubble_fraction": document["measured"]["bubble_fraction"],
        "peak_allocated_bytes": peaks,
    }  # fmt: skip
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
    spread: Spread,
    steps: Steps,
    timeline: Timeline,
    peaks: list[float],
    checked: dict[str, Any] | None,
) -> dict[str, Any]:
    """The document of `parsim run --json`; null where too few steps were left to time."""
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
            "recording_cost": timeline.meta["recording_cost"],
            "tokens_per_s": known(plan.global_batch_size * job.model.seq_len / spread.median),
            "mfu": known(flops / capable),
            "loss": [known(loss) for loss in steps.losses],
            "lost_on_ranks": list(steps.lost_on),
            "restarts": steps.restarts,
            **_load(timeline),
        },
        "error": {
            "step_time": known(predicted.step_time / spread.median - 1.0),
            "peak_memory": highest / max(peaks) - 1.0,
        },
        "verify": checked,
    }


def _load(timeline: Timeline) -> dict[str, Any]:
    """How uneven the load of experts was, where they are spread over ranks."""
    load = timeline.meta.get("expert_load")
    return {} if load is None else {"expert_load": load}


def bubble_fraction(timeline: Timeline) -> float:
    """Idle share of the compute streams between the first and the last action, mean over ranks."""
    found = quantities_of(timeline, {rank: (rank,) for rank in timeline.ranks})
    return found.step["bubble_fraction"]
