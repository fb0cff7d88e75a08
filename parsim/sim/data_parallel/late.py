"""Many steps of workers that differ, of any plan: how long they take, and what makes them late.

A strategy's rounds are run as events with a factor for each worker and round. A step is over when
the workers together have done one global batch, so that those of an asynchronous strategy count as
they come: the k-th ends with round n k of all n workers, whoever did them.

    worker 0   | 1 | 2 | 3 | 4 |          n = 2: steps end where 2, 4, 6 ... rounds are done
    worker 1   |    1   |    2   |        with a barrier that is the slower worker's end

A server that waits for q of n gradients ends its step with the q-th, which is q / n of a batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from parsim.arrays import Array
from parsim.cost.jitter import Jitter
from parsim.cost.job import Job
from parsim.cost.legal import check_legal
from parsim.plan import Plan
from parsim.plan.strategies import ParameterServer
from parsim.sim.data_parallel.pace import WARM_UP, on_all_ranks, speeds
from parsim.sim.data_parallel.priced_strategy import PricedStrategy
from parsim.sim.data_parallel.workers import Workers
from parsim.sim.lateness.monte_carlo import JitterResult, check_steps, simulate_jitter
from parsim.sim.lateness.study import SHARE_STEPS, Progress
from parsim.sim.recurrence.evaluate import evaluate
from parsim.sim.rounds.rounds_end import RoundsEnd
from parsim.sim.rounds.run import run_rounds
from parsim.strategy import StepProgram

LEAST_ROUNDS = 20
"""Rounds of a cluster where workers drift apart."""
QUIET = Jitter(speed_spread=0.0, noise=0.0, hiccups=0.0)
"""Workers that do not differ."""


def jitter_of(
    job: Job,
    plan: Plan,
    jitter: Jitter,
    *,
    steps: int,
    seed: int = 0,
    progress: Progress | None = None,
) -> JitterResult:
    """Predict the distribution of the step time of a plan with any strategy.

    Arguments and errors are those of `simulate_jitter`, which answers for all-reduced gradients.
    """
    if not plan.runs_own_program:
        return simulate_jitter(job, plan, jitter, steps=steps, seed=seed, progress=progress)
    check_legal(job, plan)
    jitter.check(plan.world_size)
    check_steps(steps, seed)
    strategy = PricedStrategy.of(evaluate(job, plan.whole_models), plan)
    study = _Study(strategy=strategy, seed=seed)
    parts = study.clusters(jitter, steps, progress)
    times = np.concatenate(parts)
    return JitterResult(
        seed=seed,
        times=tuple(times.tolist()),
        base=study.mean(QUIET, steps),
        straggler=strategy.straggler,
        within=_within(parts),
        losses=study.losses(jitter, steps),
        alone=study.alone(jitter, steps),
        slow_ranks=tuple(f"worker {rank}: {factor:g}x" for rank, factor in jitter.slow_ranks),
        assumptions=jitter.assumptions(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Study:
    """A priced program whose rounds are drawn cluster by cluster."""

    strategy: PricedStrategy
    seed: int

    @property
    def workers(self) -> Workers:
        """Who runs the program."""
        return self.strategy.workers

    @property
    def program(self) -> StepProgram:
        """What they run."""
        return self.strategy.priced.program

    def clusters(self, jitter: Jitter, steps: int, progress: Progress | None = None) -> list[Array]:
        """Seconds of so many steps, those of each cluster by themselves."""
        rounds, parts, done = self._rounds(jitter, steps), list[Array](), 0
        while done < steps:
            parts.append(self._of_cluster(jitter, len(parts), rounds)[: steps - done])
            done += len(parts[-1])
            if progress is not None:
                progress(done, steps)
        return parts

    def _rounds(self, jitter: Jitter, steps: int) -> int:
        """Rounds of one cluster: whole repetitions of what the strategy does every so often.

        What a strategy does at the start alone (post-local) is at the start of every cluster.
        """
        program = self.program
        if any(task.when.since for task in program.tasks):
            return program.rounds
        period = LEAST_ROUNDS if program.depends_on_arrival else program.rounds
        count = max(1, min(jitter.clusters, steps // 2))
        return -(-steps // (count * period)) * period

    def _of_cluster(self, jitter: Jitter, cluster: int, rounds: int) -> Array:
        """Steps of one cluster.

        Where workers drift apart, those until they have are left out, and those behind the first
        one's last round, when fewer and fewer are at work.
        """
        program, count = self.program, self.workers.count
        loose = bool(program.depends_on_arrival)
        program = replace(program, rounds=rounds, steps=rounds)
        drawn = speeds(jitter, rounds, self.workers.compute, [self.seed, cluster])
        slow = on_all_ranks(drawn, program)
        prices = self.strategy.priced.task_program.prices
        end = run_rounds(program, prices, slow=slow, seed=self.seed + cluster)
        ends = self._ends(end)
        if loose:
            ends = ends[ends <= end.finished[-1, :count].min()]
        apart = max(2, int(WARM_UP * rounds)) if loose else 0
        return np.diff(ends, prepend=0.0)[apart:] * self._share

    @property
    def _quorum(self) -> int:
        strategy = self.workers.plan.strategy
        late = strategy.backup_workers if isinstance(strategy, ParameterServer) else 0
        return self.workers.count - late

    @property
    def _share(self) -> float:
        """Steps of the program that make up one global batch."""
        return self.workers.count / self._quorum

    def _ends(self, end: RoundsEnd) -> Array:
        """When each step was over, (rounds,)."""
        count = self.workers.count
        finished = end.finished[:, :count]
        if self._quorum < count:
            return np.asarray(np.sort(finished, axis=1)[:, self._quorum - 1])
        return np.asarray(np.sort(finished, axis=None)[count - 1 :: count])

    def losses(self, jitter: Jitter, steps: int) -> Mapping[str, float]:
        """What each source costs: as many steps again, without it."""
        few = min(steps, SHARE_STEPS)
        mean = self.mean(jitter, few)
        return {name: mean - self.mean(jitter.without(name), few) for name in jitter.active}

    def alone(self, jitter: Jitter, steps: int) -> Mapping[str, float]:
        """What each source costs where it is the only one, seconds on top of none."""
        few = min(steps, SHARE_STEPS)
        base = self.mean(QUIET, few)
        return {name: self.mean(jitter.only(name), few) - base for name in jitter.active}

    def mean(self, jitter: Jitter, steps: int) -> float:
        """Mean of so many steps."""
        return float(np.concatenate(self.clusters(jitter, steps)).mean())


def _within(clusters: Sequence[Array]) -> float:
    """Standard deviation of the steps around the mean of their cluster; 0 of a single step."""
    squares = sum(float(np.sum((part - part.mean()) ** 2)) for part in clusters)
    freedom = max(1, sum(map(len, clusters)) - len(clusters))
    return float(np.sqrt(squares / freedom))
