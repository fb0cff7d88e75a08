"""One rank's part of `parsim run` for a plan whose workers have a strategy of their own.

Beside the losses it keeps when each gradient came, so that a run can be drawn against seconds and
against samples: the simulator knows how many samples a second a strategy takes, not what they are
worth. Evaluations are of weights that were kept on the way, after the training, so that nobody
waits for them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import TypeVar

import torch.distributed as dist
from torch import Tensor

from executor.devices.all_ranks import gathered
from executor.devices.machine import DeviceReport
from executor.faults.reports import HERE
from executor.measure.steps import mean_over_ranks
from executor.measure.tolerance import relative_error
from executor.model.graph.modules import without_dropout
from executor.model.laid import DeviceParts
from executor.model.module import seed_dropout
from executor.run.evaluation import BATCHES
from executor.run.part import RankPart
from executor.run.results import save_results
from executor.run.run import optimizer_of
from executor.run.start import started
from executor.run.strategy_document import Evaluated, Measured, strategy_document
from executor.run.teller import Teller
from executor.strategies.clock import clock_of_ranks
from executor.strategies.compute import average, samples_by_process, weight
from executor.strategies.replays.log import Ended, Trained
from executor.strategies.replays.peers import replay_peers
from executor.strategies.replays.replay import Replay, replay
from executor.strategies.replica import FlatReplica
from executor.strategies.train import train, verify
from executor.strategies.work import Work
from parsim.launch.options import RunOptions
from parsim.layout.laid import Laid
from parsim.model.graph.record import Graph
from parsim.model.reader import Description
from parsim.plan.strategies import BranchParallel, Layout, ParameterServer
from parsim.scenario import Scenario
from parsim.sim.branches.placement import Placement
from parsim.sim.branches.priced import placement_of
from parsim.sim.layouts.priced import laid_out


def strategy_work(part: RankPart, *, still: bool = False) -> Work:
    """What a rank trains, its clock not yet at zero; `still` is without dropout."""
    options, plan = part.options, part.scenario.fixed_plan()
    spec = part.still if still else part.scenario.model
    placement, laid = _placement(part), _laid(part, still=still)
    return Work(
        plan=plan,
        replica=_replica(part, spec, placement, laid),
        batches=part.of_rank,
        config=optimizer_of(part.scenario, options),
        rounds=options.last_step,
        clock=time.perf_counter,
        slow=dict(part.scenario.jitter.slow_ranks),
        keep=options.eval_every,
        placement=placement,
        laid=laid,
    )


def _replica(
    part: RankPart, spec: Description, placement: Placement | None, laid: Laid | None
) -> FlatReplica:
    """The model, or this rank's part of it."""
    seed, plan = part.options.seed, part.scenario.fixed_plan()
    if laid is not None:
        parts = DeviceParts(laid, dist.get_rank())
        return FlatReplica(laid.local, seed=seed, device=part.device, values=parts.values(seed))
    device = dist.get_rank() % plan.strategy.sharers
    only = None if placement is None else placement.nodes(device)
    return FlatReplica(spec, seed=seed, device=part.device, values=part.values, only=only)


def _placement(part: RankPart) -> Placement | None:
    """Where the paths of the model are, as rank 0 finds it; None where every rank has all."""
    plan, job = part.scenario.fixed_plan(), part.scenario.job
    if not isinstance(plan.strategy, BranchParallel):
        return None
    return _of_first(lambda: placement_of(job, plan))


def _laid(part: RankPart, *, still: bool) -> Laid | None:
    """How the model is laid out, as rank 0 finds it; None where it is not."""
    plan, job = part.scenario.fixed_plan(), part.scenario.job
    if not isinstance(plan.strategy, Layout):
        return None
    laid: Laid = _of_first(lambda: laid_out(job, plan))
    return replace(laid, graph=without_dropout(laid.graph)) if still else laid


def _of_first(made: Callable[[], T]) -> T:
    """What rank 0 makes, on all ranks."""
    shared = [made() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(shared)
    return shared[0]  # type: ignore[return-value]  # rank 0 has put it there


T = TypeVar("T")


def run_strategy(scenario: Scenario, report: DeviceReport, options: RunOptions) -> None:
    """Train for warm-up and measured rounds, verify where asked for, and write what came out."""
    with started(scenario, report, options) as start:
        part = RankPart.of(scenario, options, start.device)
        HERE.enter("verify" if options.verify else "build")
        checked = verify(strategy_work(part, still=True), options.seed) if options.verify else None
        work = strategy_work(part)
        teller = _teller(part, work) if start.rank == 0 else None
        work = _told(work, teller)
        seed_dropout(options.seed, start.rank)
        done = train(replace(work, clock=clock_of_ranks(part.device)))
        HERE.enter("evaluate")
        evaluations = _evaluations(part, work, done)
        HERE.enter("write")
        measured = replace(
            _measured(part, work, done),
            evaluations=evaluations,
            core_products=() if teller is None else tuple(teller.core_products),
        )
        replayed = _replayed(part, done, measured) if options.verify else None
        if start.predicted is not None:
            meta = start.meta()
            document = strategy_document(scenario, report, start.predicted, measured, checked, meta)
            document["strategy"]["replay_error"] = replayed
            save_results(scenario, options.out, document, measured.losses, options.warmup)


def _measured(part: RankPart, work: Work, done: Trained) -> Measured:
    """What all ranks saw of the training; every rank must call it."""
    return Measured(
        rounds=gathered(done.rounds),
        applied=[entry for here in gathered(done.applied) for entry in here],
        events=gathered(done.events),
        warmup=part.options.warmup,
        samples=samples_by_process(work.plan),
        in_step=isinstance(work.plan.strategy, ParameterServer),
    )


def _teller(part: RankPart, work: Work) -> Teller:
    """What tells of the rounds of rank 0's worker."""
    return Teller.of(part, work.config.rate.at, worker=0)


def _told(work: Work, teller: Teller | None) -> Work:
    """The work, whose rounds are noted: where a rank is, and on rank 0 in the log of steps."""

    def told(ended: Ended) -> None:
        HERE.enter("step", ended.round + 1)
        if teller is not None:
            teller.add(ended)

    HERE.enter("step", 0)
    return replace(work, told=told)


def _evaluations(part: RankPart, work: Work, done: Trained) -> list[Evaluated]:
    """Losses, of data that is not trained on, of the weights that were kept on the way."""
    results = []
    batches = [
        (weight(work.plan, worker), batch)
        for worker in _workers_here(work)
        for batch in islice(part.evaluation(worker), BATCHES)
    ]
    ended = {ended_round.round + 1: ended_round.seconds for ended_round in done.rounds}
    for taken in gathered(sorted(done.copies))[0]:
        work.replica.load(_of_all(work, done.copies.get(taken)))
        losses = [share * work.replica.evaluate(batch) for share, batch in batches]
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


def _replayed(part: RankPart, done: Trained, measured: Measured) -> float | None:
    """Largest error of the final weights against a replay of the log, where there is one.

    None with dropout, whose masks are drawn anew.
    """
    model = part.scenario.model
    if not isinstance(model, Graph) and model.dropout:
        return None
    work = strategy_work(part)
    fresh = Replay(work.plan, work.replica, work.batches, work.config, work.servers_config)
    if measured.applied:
        return relative_error(done.weights, replay(fresh, measured.applied))
    if any(measured.events):
        again = replay_peers(fresh, measured.events)[dist.get_rank()]
        return max(gathered(relative_error(done.weights, again)))
    return None
