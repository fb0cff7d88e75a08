"""One rank's part of `parsim run` for a plan with a strategy; rank 0 writes `run.json`.

Beside the losses it keeps when each gradient came, so that a run can be drawn against seconds and
against samples: the simulator knows how many samples a second a strategy takes, not what they are
worth.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch.distributed as dist

from executor.devices.machine import DeviceReport, rank_device
from executor.devices.process_group import gathered, process_group
from executor.faults.reports import HERE, fatal, writing
from executor.measure.steps import Spread, known
from executor.strategies.log import Applied, Trained, Work
from executor.strategies.replay import ages, replay
from executor.strategies.replica import Batch, Recipe, Replica
from executor.strategies.train import train
from executor.strategies.verify import verify
from executor.training.text import Corpus, batches
from parsim.launch.options import RunOptions
from parsim.scenario import Scenario
from parsim.sim import Prediction, simulate

SCHEMA_VERSION = 1
Round = tuple[float, float]
"""Seconds since the start, and a worker's own loss of the round that ended then."""


def run_strategy(scenario: Scenario, report: DeviceReport, options: RunOptions) -> None:
    """Train for warm-up and measured rounds, verify where asked for, and write what came out."""
    plan, device = scenario.fixed_plan(), rank_device(report)
    rank = int(os.environ["RANK"])
    with process_group(report.backend, options.timeout, device), fatal(options.out, rank):
        HERE.enter("build")
        shares = Shares(scenario, Corpus.load(options.data, tokenizer=options.tokenizer), options)
        replica = Replica(scenario.spec, seed=options.seed, device=device)
        dist.barrier()
        start = time.perf_counter()
        work = Work(
            plan=plan,
            replica=replica,
            batches=shares.batch,
            rounds=options.warmup + options.steps,
            clock=lambda: time.perf_counter() - start,
            slow=dict(scenario.jitter.slow_ranks).get(rank, 1.0),
        )
        HERE.enter("step", 0)
        recipe = Recipe(
            name=scenario.job.optimizer.name,  # type: ignore[arg-type]
            learning_rate=options.learning_rate,
        )
        done = train(work, recipe)
        HERE.enter("write")
        rounds, applied = gathered(done.losses), gathered(done.applied)[0]
        checked = verify(scenario, shares.batch, device, options) if options.verify else None
        replayed = (
            _replayed(work, scenario, done, applied, recipe, options) if options.verify else None
        )
        if rank == 0:
            predicted = simulate(
                scenario.job,
                plan,
                memory_margin=scenario.memory_margin,
                jitter=scenario.jitter,
            )
            measured = Measured(rounds, applied, options.warmup, plan.global_batch_size)
            document = run_document(scenario, report, predicted, measured, checked)
            document["strategy"]["replay_error"] = replayed
            with writing(options.out / "run.json") as path:
                path.parent.mkdir(parents=True, exist_ok=True)
                text = json.dumps(document, indent=2, allow_nan=False)
                path.write_text(text + "\n", encoding="utf-8")
            _tell_launcher()


def _tell_launcher() -> None:
    """Let the launcher know that rank 0 was among its ranks."""
    if path := os.environ.get("PARSIM_WROTE"):
        Path(path).touch()


@dataclass(frozen=True, slots=True)
class Shares:
    """What each worker trains on in each round: its rows of that step's global batch."""

    scenario: Scenario
    corpus: Corpus
    options: RunOptions

    def batch(self, worker: int, number: int) -> Batch:
        """A worker's rows of a round."""
        plan, spec = self.scenario.fixed_plan(), self.scenario.spec
        tokens, targets = next(
            batches(
                self.corpus,
                seed=self.options.seed,
                global_batch_size=plan.global_batch_size,
                seq_len=spec.seq_len,
                masked=not spec.causal,
                first_step=number,
            )
        )
        rows = plan.global_batch_size // plan.dp
        mine = slice(worker * rows, (worker + 1) * rows)
        return tokens[mine], targets[mine]


def _replayed(
    work: Work,
    scenario: Scenario,
    done: Trained,
    applied: list[Applied],
    recipe: Recipe,
    options: RunOptions,
) -> float | None:
    """Largest error of the final weights against a replay of the log, where there is one.

    None with dropout, whose masks are drawn anew.
    """
    if not applied or scenario.spec.dropout:
        return None
    fresh = Replica(scenario.spec, seed=options.seed, device=done.weights.device)
    again = replay(fresh, applied, work.batches, recipe, work.plan.num_microbatches)
    return float((again - done.weights).abs().max() / again.abs().max())


@dataclass(frozen=True, slots=True)
class Measured:
    """Rounds of all workers, the order of arrivals, and how many rounds were warm-up."""

    rounds: list[list[Round]]
    applied: list[Applied]
    warmup: int
    samples: int

    @property
    def losses(self) -> list[float]:
        """Mean loss of each round over the workers."""
        return [fmean(loss for _, loss in row) for row in zip(*self.rounds, strict=True)]

    @property
    def seconds(self) -> list[float]:
        """Seconds of each measured round, until the slowest worker is done."""
        ends = [max(end for end, _ in row) for row in zip(*self.rounds, strict=True)]
        begins = [0.0, *ends[:-1]]
        lengths = [end - begin for begin, end in zip(begins, ends, strict=True)]
        return lengths[self.warmup :]

    @property
    def step_time(self) -> float:
        """Seconds in which all workers together do one global batch."""
        first = [row[self.warmup - 1][0] if self.warmup else 0.0 for row in self.rounds]
        begin, stop = max(first), min(row[-1][0] for row in self.rounds)
        done = sum(begin < end <= stop for row in self.rounds for end, _ in row)
        return len(self.rounds) * (stop - begin) / done if done and stop > begin else float("nan")

    def curve(self) -> list[dict[str, float | None]]:
        """Loss of each worker's round against seconds and samples, in order of time."""
        ends = sorted(end for row in self.rounds for end in row)
        each = self.samples / len(self.rounds)
        return [
            {"seconds": end, "samples": (number + 1) * each, "loss": known(loss)}
            for number, (end, loss) in enumerate(ends)
        ]


def run_document(
    scenario: Scenario,
    report: DeviceReport,
    predicted: Prediction,
    measured: Measured,
    checked: dict[str, Any] | None,
) -> dict[str, Any]:
    """The document of `parsim run --json` for a plan with a strategy."""
    plan, step = predicted.plan, measured.step_time
    old = ages(measured.applied)
    return {
        "schema_version": SCHEMA_VERSION,
        "plan": plan.to_json(),
        "device": str(report),
        "backend": report.backend,
        "strategy": {
            "name": plan.strategy.name,
            "mean_staleness_updates": fmean(old) if old else None,
            "ages_updates": old,
            "order": [entry.worker for entry in measured.applied],
            "curve": measured.curve(),
        },
        "predicted": {
            "step_time_s": predicted.step_time,
            "samples_per_s": plan.global_batch_size / predicted.step_time,
        },
        "measured": {
            "step_time_s": {**Spread.of(measured.seconds).to_json(), "mean": known(step)},
            "samples_per_s": known(plan.global_batch_size / step),
            "tokens_per_s": known(plan.global_batch_size * scenario.job.model.tokens / step),
            "loss": [known(loss) for loss in measured.losses],
            "restarts": 0,
        },
        "error": {"step_time": known(predicted.step_time / step - 1.0)},
        "verify": checked,
    }
