"""How fast a strategy's program goes: by recurrence where that tells, else by events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from parsim.arrays import Array
from parsim.cost.jitter import Jitter
from parsim.sim.data_parallel.families.priced import Priced
from parsim.sim.data_parallel.priced_strategy import PricedStrategy
from parsim.sim.data_parallel.workers import Workers
from parsim.sim.program import by_recurrence
from parsim.sim.recurrence.queues import passing
from parsim.sim.rounds.figures import Spoke
from parsim.sim.rounds.linked_run import Carrier, run_on_links
from parsim.sim.rounds.rounds_end import RoundsEnd, Staleness, staleness
from parsim.sim.rounds.run import run_rounds
from parsim.strategy import StepProgram

WARM_UP = 0.1
"""Share of the rounds that is left out of a rate: workers start together, and drift apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Seconds of a step (in which all workers have done one on average), and what events tell.

    `busy` is the share of the time that each queue serves. `updates` are those a second that
    change the shared weights one by one.
    """

    tier: Spoke
    step_time: float
    busy: Mapping[str, float]
    ages: Staleness | None = None
    updates: float = 0.0
    dropped: float = 0.0


def pace(
    strategy: PricedStrategy, jitter: Jitter, seed: int = 0, carrier: Carrier | None = None
) -> Pace:
    """Run a program and take its rate; on a carrier its messages share links."""
    priced = strategy.priced
    program = priced.program
    if program.depends_on_arrival or carrier is not None:
        end = rounds_of(strategy, jitter, seed=seed, carrier=carrier)
        if program.depends_on_arrival:
            return _of_events(strategy.workers, priced, end)
        return Pace(tier="events", step_time=end.end / program.steps, busy=_shares(end))
    seconds = float(by_recurrence(priced.task_program).step_time[0])
    return Pace(tier="recurrence", step_time=seconds, busy=_busy(priced, seconds))


def least_step(strategy: PricedStrategy) -> float:
    """Seconds that the busiest queue serves in a step: none is shorter, but for a run's ends."""
    return max(_busy(strategy.priced, 1.0).values(), default=0.0)


def rounds_of(
    strategy: PricedStrategy,
    jitter: Jitter,
    *,
    seed: int = 0,
    carrier: Carrier | None = None,
    keep: bool = False,
) -> RoundsEnd:
    """Run the rounds of a program as events.

    Workers differ as the jitter says where it matters who comes first, else by its slow ranks only.
    """
    program, workers = strategy.priced.program, strategy.workers
    prices = strategy.priced.task_program.prices
    spreads = jitter if program.depends_on_arrival else Jitter().only("slow_ranks")
    spreads = replace(spreads, slow_ranks=jitter.slow_ranks)
    drawn = speeds(spreads, program.rounds, workers.compute, seed)
    slow = on_all_ranks(drawn, program)
    if carrier is None:
        return run_rounds(program, prices, slow=slow, seed=seed, keep=keep)
    return run_on_links(program, prices, carrier, slow=slow, seed=seed, keep=keep)


def tier_times(priced: Priced) -> tuple[float, float]:
    """Seconds of a step by the recurrence and by events; equal where events alone know."""
    program = priced.program
    if program.depends_on_arrival:
        return 1.0, 1.0
    walked = by_recurrence(priced.task_program)
    run = run_rounds(program, priced.task_program.prices)
    return float(walked.step_time[0]), run.end / program.steps


def on_all_ranks(slow: Array, program: StepProgram) -> Array:
    """Factors of workers, with 1 for the servers behind them."""
    servers = np.ones((len(slow), program.ranks - slow.shape[1]))
    return np.concatenate([slow, servers], axis=1)


def speeds(jitter: Jitter, rounds: int, compute: Array, seed: int | Sequence[int]) -> Array:
    """How many times as long each worker computes in each round, (rounds, workers).

    `compute` (workers,) is how long it does otherwise. A worker's own speed, noise of each round,
    listed slow ranks, and hiccups of the host.
    """
    random, workers = np.random.default_rng(seed), len(compute)
    slowness = np.exp(jitter.speed_spread * random.standard_normal(workers))
    for rank, factor in jitter.slow_ranks:
        slowness[rank] *= factor
    noise = np.exp(jitter.noise * random.standard_normal((rounds, workers)))
    stops = random.poisson(jitter.hiccups, (rounds, workers)) * jitter.hiccup_length
    return np.asarray(slowness * noise + stops / compute)


def _busy(priced: Priced, step: float) -> dict[str, float]:
    """Shares of a step that queues serve, by what passes them."""
    served: dict[str, float] = {}
    for task in priced.program.tasks:
        for queue in task.queues:
            count = len(task.ranks)
            seconds = np.broadcast_to(priced.seconds[queue.price], (count,))
            for name, places in passing(queue, count).items():
                served[name] = served.get(name, 0.0) + float(seconds[places].sum())
    return {name: seconds / step for name, seconds in served.items()}


def _of_events(workers: Workers, priced: Priced, end: RoundsEnd) -> Pace:
    """Rate between the start and the first worker's end, without the warm-up.

    That is over when all workers have done a share of their rounds; where one is so slow that it
    would take most of the time, at half of it.
    """
    program = priced.program
    finished = end.finished[:, : workers.count]
    first = max(int(WARM_UP * program.rounds) - 1, 0)
    stop = float(finished[-1].min())
    begin = min(float(finished[first].max()), 0.5 * stop)
    rounds = program.rounds * workers.count
    counted = 1.0 - (end.dropped + end.skipped) / rounds
    done = float(((finished > begin) & (finished <= stop)).sum())
    batches = done * counted / (stop - begin)
    ages = staleness(end)
    within = _within(ages, end, begin, stop)
    return Pace(
        tier="events",
        step_time=workers.count / batches,
        busy=_shares(end),
        ages=None if priced.synchronises else within,
        updates=batches if not priced.synchronises else 0.0,
        dropped=end.dropped / (rounds - end.skipped),
    )


def _shares(end: RoundsEnd) -> dict[str, float]:
    """Shares of the time that queues served."""
    return {name: seconds / end.end for name, seconds in end.busy.items()}


def _within(ages: Staleness, end: RoundsEnd, begin: float, stop: float) -> Staleness:
    """Ages of the updates between two moments."""
    times = end.versions.time[end.versions.wrote.astype(bool)]
    rows = (times > begin) & (times <= stop)
    return Staleness(age=ages.age[rows], worker=ages.worker[rows], round=ages.round[rows])
