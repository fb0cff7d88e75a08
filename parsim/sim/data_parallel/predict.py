"""The prediction of a plan whose strategy is not the all-reduce, from that of its DDP step.

    step = forward + backward + update + synchronisation (+ straggler)

What the workers compute is DDP's; `synchronisation` is all that remains of the step on the mean
worker: messages that nothing hides, queues, and waiting for others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import exp, hypot, log, sqrt

import numpy as np

from parsim.cost.collective.measured_curve import SPREAD, size_class
from parsim.cost.jitter import Jitter
from parsim.plan import Plan
from parsim.sim.changed_memory import PeakBytes, with_memory
from parsim.sim.confidence.basis import Z80
from parsim.sim.confidence.interval import Interval, standing_half
from parsim.sim.confidence.known_errors import Standing, errors_of
from parsim.sim.confidence.strategy_runs import strategy_words
from parsim.sim.data_parallel.holdings import Holdings, holdings
from parsim.sim.data_parallel.pace import Pace, pace
from parsim.sim.data_parallel.priced_strategy import PricedStrategy
from parsim.sim.data_parallel.strategy_figures import StrategyStep, strategy_figures
from parsim.sim.data_parallel.workers import Workers
from parsim.sim.prediction import Prediction
from parsim.sim.recurrence.evaluate import Evaluation
from parsim.sim.rounds.figures import StrategyFigures
from parsim.units import format_rate

WORTH_TELLING = 0.05
"""A growth of DDP's steps by stragglers that readers are told where a strategy is without it."""


def prediction_of(
    strategy: PricedStrategy, ddp: Prediction, jitter: Jitter | None = None
) -> Prediction:
    """Predict a plan.

    Args:
        strategy: the plan's, priced.
        ddp: the prediction of the plan with all-reduced gradients.
        jitter: how workers differ, where their order of arrival matters; None: the usual.
    """
    done = _step_of(strategy, ddp, jitter or Jitter())
    step, workers = done.seconds, done.workers
    standing = _standing(workers, ddp, done.parts["synchronisation"] / step)
    faster, sharers = ddp.step_time / step, workers.plan.strategy.sharers
    return replace(
        _with_memory(workers, ddp, done.holding),
        plan=workers.plan,
        step_time=step,
        interval=_interval(standing, ddp, step),
        standing=standing,
        pipeline_time=min(ddp.pipeline_time, step),
        tokens_per_second=ddp.tokens_per_second * faster,
        mfu=ddp.mfu * faster / sharers,
        hfu=ddp.hfu * faster / sharers,
        bubble_fraction=0.0,
        bubble_overhead=0.0,
        device_span=step,
        breakdown=done.parts,
        notes=(*ddp.notes, *_notes(done, jitter)),
        rank_uses=(),
        strategy=strategy_figures(done),
    )


def _step_of(strategy: PricedStrategy, ddp: Prediction, jitter: Jitter) -> StrategyStep:
    """Run the strategy, and take its step apart."""
    workers, priced = strategy.workers, strategy.priced
    ran = pace(strategy, jitter)
    seconds = ran.step_time * strategy.growth
    return StrategyStep(
        workers=workers,
        priced=priced,
        ran=ran,
        seconds=seconds,
        parts=_parts(strategy, ddp, ran, seconds),
        holding=holdings(workers, priced, ddp.memory),
    )


def memory_of(strategy: PricedStrategy, ddp: Prediction) -> Prediction:
    """DDP's prediction with what devices of each role hold, which no run of the program changes."""
    workers, priced = strategy.workers, strategy.priced
    return _with_memory(workers, ddp, holdings(workers, priced, ddp.memory))


def figures_of_all_reduce(evaluation: Evaluation, plan: Plan, ddp: Prediction) -> StrategyFigures:
    """What is asked of a strategy that is run as DDP: averages after every step."""
    strategy = PricedStrategy.of(evaluation, plan)
    workers, priced = strategy.workers, strategy.priced
    done = StrategyStep(
        workers=workers,
        priced=priced,
        ran=Pace(tier="recurrence", step_time=ddp.step_time, busy={}),
        seconds=ddp.step_time,
        parts=dict(ddp.breakdown),
        holding=holdings(workers, priced, ddp.memory),
    )
    return replace(strategy_figures(done), trains_otherwise=False)


def _parts(strategy: PricedStrategy, ddp: Prediction, ran: Pace, step: float) -> dict[str, float]:
    """Parts of the step, mean over workers; synchronisation is what remains."""
    workers, priced = strategy.workers, strategy.priced
    kept = ("forward", "backward", "recompute", "exposed_communication")
    sharers = workers.plan.strategy.sharers
    parts = {name: ddp.breakdown[name] / sharers for name in kept}
    if priced.compute is not None:
        parts = {**dict.fromkeys(kept, 0.0), **dict(zip(kept, priced.compute, strict=False))}
    parts["optimizer"] = 0.0 if priced.wires else float(np.mean(priced.seconds["optimizer"]))
    rest = ran.step_time - sum(parts.values())
    parts["synchronisation"] = max(rest, 0.0)
    parts["straggler"] = step - sum(parts.values())
    return parts


def _standing(workers: Workers, ddp: Prediction, exposed: float) -> Standing:
    """DDP's, with the strategy as a kind of plan and with what is not known of its messages."""
    several = "across" if len(workers.systems) > 1 else "node"
    spread = SPREAD[several][int(size_class(workers.weight_bytes))]
    kinds = (*ddp.standing.kinds, workers.plan.strategy.name)
    return replace(ddp.standing, kinds=kinds, messages=spread * exposed)


def _interval(standing: Standing, ddp: Prediction, step: float) -> Interval:
    """DDP's interval, widened by as much as the strategy is less sure on one kind of node."""
    low, high = (_added(standing, ddp.standing, slower=slower) for slower in (False, True))
    below = hypot(log(ddp.step_time / ddp.interval.low), low)
    above = hypot(log(ddp.interval.high / ddp.step_time), high)
    strategy, messages = standing.kinds[-1], Z80 * standing.messages
    among = strategy not in errors_of(standing.software).nearest(standing).new_kinds
    runs = strategy_words(strategy, among=among)
    basis = f"{ddp.interval.basis}; {runs}; its messages and waits add {100 * messages:.1f} %"
    return Interval(low=step * exp(-below), high=step * exp(above), basis=basis)


def _added(standing: Standing, ddp: Standing, *, slower: bool) -> float:
    """What the half of the strategy's interval has beside that of DDP's, ln."""
    errors = errors_of(standing.software)
    half, other = (standing_half(each, errors, slower=slower) for each in (standing, ddp))
    return sqrt(max(half**2 - other**2, 0.0))


def _with_memory(workers: Workers, ddp: Prediction, holding: Holdings) -> Prediction:
    """DDP's prediction with what devices of each role hold instead; the fullest role first."""
    by_role = tuple(holding.devices.values())
    ranks = PeakBytes(peaks=tuple(sum(parts.values()) for parts in by_role), categories=by_role)
    activations = max(ddp.memory["activations"], 1.0)
    return with_memory(ddp, workers.job.software, ranks, activations=activations)


def _notes(step: StrategyStep, jitter: Jitter | None) -> Iterator[str]:
    """What a reader must know of the numbers."""
    workers, priced, ran = step.workers, step.priced, step.ran
    strategy = workers.plan.strategy
    if ran.tier == "events":
        rounds = priced.program.rounds
        yield (
            f"strategy {strategy.name}: times depend on who comes first, so events alone answer "
            f"({rounds} rounds of each worker, drawn with the jitter block's spreads)"
        )
        if jitter is None or not jitter.stated:
            yield from Jitter().assumptions()
    if workers.straggler > WORTH_TELLING and not priced.synchronises:
        yield (
            f"no worker waits for a slower one, so nothing stands for the "
            f"{100 * workers.straggler:.0f} % by which DDP's steps grow under "
            f"{workers.job.software.id}; what of it is no wait slows these workers too"
        )
    if priced.together:
        yield from priced.together.notes()
    if priced.changes_training:
        yield "convergence is not predicted: the same samples may train less or more"
    if priced.wires and priced.wires.on_hosts:
        rate = workers.systems[0].host_bandwidth or 0.0
        yield f"servers work at 80 % of their host's {format_rate(rate)} (assumption: STREAM)"
