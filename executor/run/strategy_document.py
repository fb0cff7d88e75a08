"""The document of a run whose workers have a strategy of their own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import fmean
from typing import Any, NamedTuple

from executor.devices.machine import DeviceReport
from executor.measure.steps import Spread, known
from executor.run.document import core_pace, head, measured_hardware
from executor.strategies.replays.log import Applied, Ended, Event, ages, ages_of_peers
from parsim.comparison.compared import uncalibrated, unlike
from parsim.cost.job import Job
from parsim.plan import Plan
from parsim.scenario import Scenario
from parsim.sim import Prediction
from parsim.sim.drawing.timeline import predicted_hardware


class Evaluated(NamedTuple):
    """The loss of data that is not trained on, after so many rounds and seconds."""

    rounds: int
    seconds: float
    loss: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Rounds of all workers, what was applied in which order, and how many rounds were warm-up.

    `samples` are those of a round of each worker, `events` what each peer did to its own weights.
    Where workers are `in_step` no gradient can be old. `core_products` are the seconds of a small
    product on the first worker's core behind each timed round.
    """

    rounds: Sequence[Sequence[Ended]]
    applied: Sequence[Applied] = ()
    events: Sequence[Sequence[Event]] = ()
    warmup: int
    samples: Sequence[int]
    evaluations: Sequence[Evaluated] = ()
    in_step: bool = False
    core_products: Sequence[float] = ()

    @property
    def _by_round(self) -> list[list[Ended]]:
        """The ends of each round; a worker that was late may lack some."""
        ends: dict[int, list[Ended]] = defaultdict(list)
        for row in self.rounds:
            for ended in row:
                ends[ended.round].append(ended)
        return [ends[number] for number in sorted(ends)]

    @property
    def losses(self) -> list[float]:
        """Mean loss of each round over its samples."""
        losses, sizes = defaultdict[int, list[float]](list), defaultdict[int, list[int]](list)
        for size, row in zip(self.samples, self.rounds, strict=True):
            for ended in row:
                losses[ended.round].append(ended.loss)
                sizes[ended.round].append(size)
        return [fmean(losses[number], sizes[number]) for number in sorted(losses)]

    @property
    def seconds(self) -> list[float]:
        """Seconds of each measured round, until the slowest worker is done."""
        ends = [max(ended.seconds for ended in row) for row in self._by_round]
        begins = [0.0, *ends[:-1]]
        lengths = [end - begin for begin, end in zip(begins, ends, strict=True)]
        return lengths[self.warmup :]

    @property
    def ages(self) -> list[int]:
        """How old each applied gradient was, in updates; empty where none can be old."""
        if any(self.events):
            return ages_of_peers(self.events)
        return [] if self.in_step else ages(self.applied)

    @property
    def dropped(self) -> float:
        """The share of all gradients that no server counted."""
        computed = sum(len(row) for row in self.rounds)
        counted = {(entry.worker, entry.round) for entry in self.applied}
        return 1.0 - len(counted) / computed if counted else 0.0

    @property
    def step_time(self) -> float:
        """Seconds in which all workers together do one global batch.

        From the last worker's end of its warm-up until the first one has done all its rounds; of a
        round that is partly in between, that part counts.
        """
        before = [row[self.warmup - 1].seconds if self.warmup else 0.0 for row in self.rounds]
        begin, stop = max(before), min(row[-1].seconds for row in self.rounds)
        if stop <= begin:
            return float("nan")
        pairs = zip(self.samples, self.rounds, strict=True)
        done = sum(size * _rounds_within(row, begin, stop) for size, row in pairs)
        counted = done * (1.0 - self.dropped)
        return sum(self.samples) * (stop - begin) / counted if counted else float("nan")

    def curve(self) -> list[dict[str, float | None]]:
        """Loss of each worker's round against seconds and samples, in order of time."""
        ends = self._ends
        done = accumulate(size for _, _, size in ends)
        return [
            {"seconds": end, "samples": float(samples), "loss": known(loss)}
            for (end, loss, _), samples in zip(ends, done, strict=True)
        ]

    @property
    def _ends(self) -> list[tuple[float, float, int]]:
        """Seconds, loss and samples of each worker's round, in order of time."""
        return sorted(
            (ended.seconds, ended.loss, size)
            for size, row in zip(self.samples, self.rounds, strict=True)
            for ended in row
        )

    def evaluated(self) -> list[dict[str, float | None]]:
        """Losses of evaluations by steps, seconds and samples that all workers had done by then."""
        return [
            {
                "steps": evaluation.rounds,
                "seconds": evaluation.seconds,
                "samples": self._done(evaluation),
                "loss": known(evaluation.loss),
            }
            for evaluation in self.evaluations
        ]

    def _done(self, evaluation: Evaluated) -> float:
        """Samples before an evaluation: whole batches, unless workers are at different rounds."""
        if not self.ages:
            return float(evaluation.rounds * sum(self.samples))
        return float(sum(size for end, _, size in self._ends if end <= evaluation.seconds))


def _rounds_within(row: Sequence[Ended], begin: float, stop: float) -> float:
    """How many of a worker's rounds lie between two moments, parts of rounds included."""
    ends = [ended.seconds for ended in row]
    return sum(
        max(min(end, stop) - max(start, begin), 0.0) / (end - start)
        for start, end in pairwise([0.0, *ends])
        if end > start
    )


def strategy_document(
    scenario: Scenario,
    report: DeviceReport,
    predicted: Prediction,
    measured: Measured,
    checked: Mapping[str, Any] | None,
    meta: Mapping[str, Any],
) -> dict[str, Any]:
    """The document of `parsim run --json` for a plan with a strategy.

    `meta` says what the run was, see `executor.run.start`.
    """
    plan, step = predicted.plan, measured.step_time
    ours = predicted_hardware(scenario.job)
    different = unlike(ours, measured_hardware(report, plan.world_size))
    return {
        **head(report, predicted, meta),
        "strategy": _strategy(plan, measured),
        "predicted": {
            "step_time_s": predicted.step_time,
            "samples_per_s": plan.global_batch_size / predicted.step_time,
        },
        "measured": _measured(scenario.job, plan, measured),
        "error": {
            "step_time": None if different else known(predicted.step_time / step - 1.0),
            "unlike": different or None,
            "uncalibrated": list(uncalibrated(ours)),
        },
        "verify": checked,
    }


def _strategy(plan: Plan, measured: Measured) -> dict[str, Any]:
    """Which strategy ran, and in which order and how late its updates were applied."""
    old = measured.ages
    return {
        "name": plan.schedule if plan.runs_as_tasks else plan.strategy.name,
        "workers": len(measured.rounds),
        "mean_staleness_updates": fmean(old) if old else None,
        "ages_updates": old,
        "order": [entry.worker for entry in measured.applied],
        "dropped": measured.dropped,
        "curve": measured.curve(),
    }


def _measured(job: Job, plan: Plan, measured: Measured) -> dict[str, Any]:
    """What was measured; null where too few rounds were left to time."""
    seconds, evaluations = measured.step_time, measured.evaluated()
    return {
        "step_time_s": {**Spread.of(measured.seconds).to_json(), "mean": known(seconds)},
        "step_seconds": measured.seconds,
        "samples_per_s": known(plan.global_batch_size / seconds),
        "tokens_per_s": known(plan.global_batch_size * job.model.tokens / seconds),
        **({"tokens_of_sample": 1} if job.model.tokens == 1 else {}),
        "loss": [known(loss) for loss in measured.losses],
        "restarts": 0,
        **core_pace(measured.core_products, job.device.core_product),
        **({"evaluations": evaluations} if evaluations else {}),
    }
