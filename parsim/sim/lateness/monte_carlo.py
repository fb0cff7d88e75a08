"""Many steps of one plan whose ranks differ: how long they take, and what makes them late.

Steps are drawn in blocks, so that memory does not grow with their number. The same seed gives the
same steps, and its first steps are the same whatever source is switched off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from parsim.arrays import Array, Index
from parsim.cost.jitter import Jitter
from parsim.cost.job import Job
from parsim.cost.legal import check_legal
from parsim.errors import InputError
from parsim.plan import Plan
from parsim.sim.lateness.draws import DIRECT_FROM, Block, Ranks, ReplicaSubset
from parsim.sim.lateness.late_replicas import late_steps
from parsim.sim.lateness.pipelines import Pipelines, PricedPlan, priced_plan

Progress = Callable[[int, int], None]

BLOCK_COLUMNS = 8192
"""Replicas x steps of a block: arrays that stay in a core's cache."""

MOST_STEPS = 10**7
"""Refuse more: their times alone would fill the memory."""

MOST_DRAWN = 10**10
"""Refuse more lengths of actions: some minutes of a core, most of them for the steps themselves."""

SHARE_STEPS = 100
"""Steps that are simulated again with a source switched off, to say what it costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JitterResult:
    """Step times of a Monte Carlo, seconds.

    `base` is the step without jitter and without the catalog's straggler allowance, `straggler`
    that allowance: the Monte Carlo takes its place. `within` is the standard deviation of the
    steps of one cluster. `losses` says how much the mean falls with a source switched off, `alone`
    how much it rises by that source alone; waits for one source hide those for another, so that
    neither sums to mean - base. `slow_ranks` describes the listed ones.
    """

    seed: int
    times: tuple[float, ...]
    base: float
    straggler: float
    within: float
    losses: Mapping[str, float]
    alone: Mapping[str, float]
    slow_ranks: tuple[str, ...]
    assumptions: tuple[str, ...]

    @property
    def mean(self) -> float:
        """Mean step, seconds."""
        return float(np.mean(self.times))

    @property
    def std(self) -> float:
        """Standard deviation of the steps, clusters and steps together."""
        return float(np.std(self.times))

    def quantile(self, share: float) -> float:
        """The step time that this share of the steps stays below."""
        return float(np.quantile(self.times, share))

    def to_json(self) -> dict[str, Any]:
        """The object `jitter` of `parsim simulate --json`."""
        return {
            "steps": len(self.times),
            "seed": self.seed,
            "without_jitter_s": self.base,
            "mean_s": self.mean,
            "p50_s": self.quantile(0.5),
            "p99_s": self.quantile(0.99),
            "std_s": self.std,
            "std_within_cluster_s": self.within,
            "slowdown_mean": self.mean / self.base,
            "loss_s": dict(self.losses),
            "loss_alone_s": dict(self.alone),
            "slow_ranks": list(self.slow_ranks),
            "straggler_replaced": self.straggler,
            "assumptions": list(self.assumptions),
        }


def simulate_jitter(
    job: Job,
    plan: Plan,
    jitter: Jitter,
    *,
    steps: int,
    seed: int = 0,
    progress: Progress | None = None,
) -> JitterResult:
    """Predict the distribution of a plan's step time.

    Args:
        job: model, cluster, software.
        plan: a legal plan.
        jitter: how ranks and steps differ.
        steps: how many to simulate.
        seed: the same seed gives the same steps.
        progress: called with (steps done, all steps).

    Raises:
        PlanError: the plan is not legal.
        InputError: the jitter does not fit the plan, or no or too many steps were asked for, of
            too many actions.
    """
    check_legal(job, plan)
    jitter.check(plan.world_size)
    check_steps(steps, seed)
    priced = priced_plan(job, plan)
    _check_draws(priced.pipelines, plan, steps)
    study = Study(pipelines=priced.pipelines, ranks=ranks_of(plan, jitter), steps=steps, seed=seed)
    return _result(plan, jitter, priced, study, study.times(jitter, progress=progress))


def _result(
    plan: Plan, jitter: Jitter, priced: PricedPlan, study: Study, times: Array
) -> JitterResult:
    """What the drawn steps say, with what each source costs."""
    return JitterResult(
        seed=study.seed,
        times=tuple(times.tolist()),
        base=priced.updated,
        straggler=priced.straggler,
        within=study.within(times, jitter),
        losses=study.losses(jitter, times),
        alone=study.alone(jitter, priced.updated),
        slow_ranks=_named(plan, jitter),
        assumptions=jitter.assumptions(),
    )


def check_steps(steps: int, seed: int) -> None:
    """Refuse a number of steps, or a seed, that cannot be.

    Raises:
        InputError: as said.
    """
    if not 1 <= steps <= MOST_STEPS:
        raise InputError(
            f"jitter steps={steps} (--jitter-steps); allowed: 1 to {MOST_STEPS}, e.g. 1000"
        )
    if seed < 0:
        raise InputError(f"seed={seed} must be at least 0")


def _check_draws(pipelines: Pipelines, plan: Plan, steps: int) -> None:
    """Refuse what would take hours: each rank draws how long each of its actions takes."""
    a_step = (
        plan.tp
        * plan.cp
        * sum(part.compiled.num_actions * len(part.replicas) for part in pipelines.parts)
    )
    if a_step * steps > MOST_DRAWN:
        raise InputError(
            f"jitter steps={steps} (--jitter-steps) of {a_step:,} actions of ranks each are more "
            f"than {MOST_DRAWN:,} draws; allowed for this plan: 1 to {MOST_DRAWN // a_step:,} steps"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Priced actions and who runs them; `times` draws steps."""

    pipelines: Pipelines
    ranks: Ranks
    steps: int
    seed: int

    def times(
        self,
        jitter: Jitter,
        *,
        first: int | None = None,
        one_by_one: frozenset[int] | None = None,
        progress: Progress | None = None,
    ) -> Array:
        """Seconds of each step, (steps,), or of the first ones in whole blocks.

        Args:
            jitter: what the ranks differ by.
            first: stop after the block that holds this many steps.
            one_by_one: pipeline ranks whose members are drawn one by one, where it must be the
                same as in another call.
            progress: called with (steps done, all steps).
        """
        apart = self.ranks.differ(jitter) if one_by_one is None else one_by_one
        if self.ranks.members < DIRECT_FROM:  # then one draw a group is dearer than each member's
            apart = frozenset(range(self.ranks.pp))
        times, blocks = [], self._blocks(jitter)
        count = self.steps if first is None else min(first, self.steps)
        needed = -(-count // self._block_steps())
        for number, clusters in enumerate(islice(blocks, needed)):
            draws = self._draws(jitter, clusters, number, apart)
            times.append(late_steps(self.pipelines, self.ranks, draws))
            if progress is not None:
                progress(sum(map(len, times)), self.steps)
        return np.concatenate(times)

    def _draws(
        self, jitter: Jitter, clusters: Index, number: int, apart: frozenset[int]
    ) -> list[Block]:
        """The draws of a block of steps, for each part of the replicas."""
        parts = self.pipelines.parts
        return [
            Block(
                part.compiled,
                self.ranks,
                jitter,
                clusters,
                seed=self.seed,
                number=number,
                one_by_one=apart,
                subset=ReplicaSubset(index, part.replicas) if len(parts) > 1 else None,
            )
            for index, part in enumerate(parts)
        ]

    def _block_steps(self) -> int:
        return max(1, BLOCK_COLUMNS // self.ranks.groups)

    def clusters(self, jitter: Jitter) -> Index:
        """The cluster of each step: runs of steps, two or more on each cluster, (steps,)."""
        count = max(1, min(jitter.clusters, self.steps // 2))
        return np.arange(self.steps) * count // self.steps

    def _blocks(self, jitter: Jitter) -> list[Index]:
        bounds = range(0, self.steps, self._block_steps())
        clusters = self.clusters(jitter)
        return [clusters[low : low + self._block_steps()] for low in bounds]

    def within(self, times: Array, jitter: Jitter) -> float:
        """Standard deviation of the steps around the mean of their cluster; 0 of a single step."""
        clusters = self.clusters(jitter)
        means = np.bincount(clusters, times) / np.bincount(clusters)
        freedom = max(1, len(times) - len(means))
        return float(np.sqrt(np.sum((times - means[clusters]) ** 2) / freedom))

    def losses(self, jitter: Jitter, times: Array) -> dict[str, float]:
        """What each source costs: the first steps again, without it.

        Members are drawn one by one or at once as before, so that all else is the same.
        """
        apart = self.ranks.differ(jitter)
        losses = {}
        for source in jitter.active:
            without = self.times(jitter.without(source), first=SHARE_STEPS, one_by_one=apart)
            losses[source] = float(times[: len(without)].mean() - without.mean())
        return losses

    def alone(self, jitter: Jitter, base: float) -> dict[str, float]:
        """What each source costs where it is the only one, seconds on top of `base`."""
        return {
            source: float(self.times(jitter.only(source), first=SHARE_STEPS).mean()) - base
            for source in jitter.active
        }


def ranks_of(plan: Plan, jitter: Jitter) -> Ranks:
    """The plan's ranks as an array, its slow ones by their position in it."""
    shards = plan.dp_shard
    return Ranks(
        pp=plan.pp,
        groups=plan.dp,
        members=plan.tp * plan.cp,
        slow=tuple((*mesh_position(plan, rank), factor) for rank, factor in jitter.slow_ranks),
        meet_forward=shards if plan.zero_stage == 3 else 1,
        meet_backward=shards if plan.zero_stage >= 2 else 1,
    )


def mesh_position(plan: Plan, rank: int) -> tuple[int, int, int]:
    """(pipeline rank, replica, member of its tensor-parallel group) of a global rank."""
    position = {axis: rank // plan.stride(axis) % plan.degree(axis) for axis in plan.rank_order}
    replica = position["dp_replicate"] * plan.dp_shard + position["dp_shard"]
    return position["pp"], replica, position["cp"] * plan.tp + position["tp"]


def _named(plan: Plan, jitter: Jitter) -> tuple[str, ...]:
    """The listed slow ranks in words: which, where in the mesh, how slow."""
    words = []
    for rank, factor in jitter.slow_ranks:
        row, replica, member = mesh_position(plan, rank)
        words.append(f"rank {rank} (pp {row}, dp {replica}, tp {member}): {factor:g}x")
    return tuple(words)
