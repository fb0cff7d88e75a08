"""One rank's part of `parsim run` for a plan whose workers have a strategy of their own.

Beside the losses it keeps when each gradient came, so that a run can be drawn against seconds and
against samples: the simulator knows how many samples a second a strategy takes, not what they are
worth. Evaluations are of weights that were kept on the way, after the training, so that nobody
waits for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from executor.devices.machine import DeviceReport
from executor.devices.process_group import gathered
from executor.faults.reports import HERE
from executor.measure.device_state import DeviceMonitor
from executor.measure.steps import Step, mean_over_ranks
from executor.model.module import seed_dropout
from executor.run.evaluation import BATCHES
from executor.run.part import Part
from executor.run.results import save_results
from executor.run.start import started
from executor.run.step_log import StepLog
from executor.run.strategy_document import Evaluated, Measured, strategy_document
from executor.run.strategy_work import strategy_work
from executor.strategies.compute import average
from executor.strategies.replays.log import Ended, Trained, Work
from executor.strategies.replays.replay import Replay, replay, replay_peers
from executor.strategies.train import train
from executor.strategies.verify import verify
from parsim.launch.options import RunOptions
from parsim.model.graph.record import Graph
from parsim.plan.strategies import ParameterServer
from parsim.scenario import Scenario

T = TypeVar("T")


def run_strategy(scenario: Scenario, report: DeviceReport, options: RunOptions) -> None:
    """Train for warm-up and measured rounds, verify where asked for, and write what came out."""
    with started(scenario, report, options) as start:
        predicted = start.predicted
        part = Part(scenario, options, start.device)
        HERE.enter("verify" if options.verify else "build")
        checked = verify(strategy_work(part, still=True), options.seed) if options.verify else None
        work = _told(part, strategy_work(part))
        seed_dropout(options.seed, start.rank)
        dist.barrier()
        done = train(work)
        HERE.enter("evaluate")
        evaluations = _evaluations(part, work, done)
        HERE.enter("write")
        measured = Measured(
            rounds=gathered(done.rounds),
            applied=[entry for here in gathered(done.applied) for entry in here],
            events=gathered(done.events),
            warmup=options.warmup,
            samples=scenario.fixed_plan().global_batch_size,
            evaluations=evaluations,
            in_step=isinstance(work.plan.strategy, ParameterServer),
        )
        replayed = _replayed(part, done, measured) if options.verify else None
        if predicted is not None:
            meta = start.meta()
            document = strategy_document(scenario, report, predicted, measured, checked, meta)
            document["strategy"]["replay_error"] = replayed
            save_results(scenario, options.out, document, measured.losses, options.warmup)


def _told(part: Part, work: Work) -> Work:
    """The work, whose rounds are noted: where a rank is, and on rank 0 in the log of steps."""
    teller = Teller.of(part, work) if dist.get_rank() == 0 else None

    def told(ended: Ended) -> None:
        HERE.enter("step", ended.round + 1)
        if teller is not None:
            teller.add(ended)

    HERE.enter("step", 0)
    return replace(work, told=told)


@dataclass(slots=True)
class Teller:
    """Writes the rounds of rank 0's worker into the log of steps."""

    log: StepLog
    rate: Callable[[int], float]
    monitor: DeviceMonitor
    warmup: int
    last: float = field(default=0.0)

    @classmethod
    def of(cls, part: Part, work: Work) -> Teller:
        """The log of a run, nothing in it."""
        options, model = part.options, part.scenario.job.model
        log = StepLog(
            folder=options.out,
            tokens=work.plan.global_batch_size * model.tokens,
            steps=work.rounds,
            restart=0,
            samples=model.tokens == 1,
            worker=0,
        )
        return cls(log, work.config.rate.at, DeviceMonitor(part.device), options.warmup)

    def add(self, ended: Ended) -> None:
        """Write one round."""
        step = Step(
            number=ended.round,
            seconds=ended.seconds - self.last,
            loss=ended.loss,
            gradient_norm=ended.norm,
            learning_rate=self.rate(ended.round),
            timed=ended.round >= self.warmup,
            device=self.monitor.look(),
        )
        self.last = ended.seconds
        self.log.add(step)


def _evaluations(part: Part, work: Work, done: Trained) -> list[Evaluated]:
    """Losses, of data that is not trained on, of the weights that were kept on the way."""
    results = []
    batches = [
        batch
        for worker in _workers_here(work)
        for batch in islice(part.evaluation(worker), BATCHES)
    ]
    ended = {ended_round.round + 1: ended_round.seconds for ended_round in done.rounds}
    for taken in gathered(sorted(done.copies))[0]:
        work.replica.load(_of_all(work, done.copies.get(taken)))
        losses = [work.replica.evaluate(batch) for batch in batches]
        loss = mean_over_ranks(losses, part.device)
        results.append(Evaluated(taken, ended.get(taken, 0.0), loss))
    return results


def _of_all(work: Work, mine: Tensor | None) -> Tensor:
    """The mean of all workers' weights where these differ, else those of rank 0."""
    weights = work.replica.weights if mine is None else mine
    if not work.plan.strategy.shares_weights:
        return average(weights)
    dist.broadcast(weights, src=0)
    return weights


def _workers_here(work: Work) -> Sequence[int]:
    """The workers that are in this process."""
    one_process = work.plan.strategy.one_process
    return range(work.plan.dp) if one_process else (dist.get_rank(),)


def _replayed(part: Part, done: Trained, measured: Measured) -> float | None:
    """Largest error of the final weights against a replay of the log, where there is one.

    None with dropout, whose masks are drawn anew.
    """
    model = part.scenario.model
    if not isinstance(model, Graph) and model.dropout:
        return None
    work = strategy_work(part)
    fresh = Replay(work.plan, work.replica, work.batches, work.config, work.servers_config)
    if measured.applied:
        return error(done.weights, replay(fresh, measured.applied))
    if any(measured.events):
        again = replay_peers(fresh, measured.events)[dist.get_rank()]
        return max(gathered(error(done.weights, again)))
    return None


def error(weights: Tensor, expected: Tensor) -> float:
    """The largest difference of weights, over the largest weight."""
    return float(torch.abs(weights - expected).max() / expected.abs().max())
