"""Many steps of one plan whose ranks differ: how long they take, and what makes them late.

Steps are drawn in blocks, so that memory does not grow with their number. The same seed gives the
same steps, and its first steps are the same whatever source is switched off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from parsim.arrays import Array
from parsim.cost.jitter import Jitter
from parsim.cost.job import Job
from parsim.cost.legal import check_legal
from parsim.errors import InputError
from parsim.plan import Plan
from parsim.sim.lateness.pipelines import PricedPlan, RankGrid, ReplicaPipelines, priced_plan
from parsim.sim.lateness.study import Progress, Study

MOST_STEPS = 10**7
"""Refuse more: their times alone would fill the memory."""

MOST_DRAWN = 10**10
"""Refuse more lengths of actions: some minutes of a core, most of them for the steps themselves."""


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


def _check_draws(pipelines: ReplicaPipelines, plan: Plan, steps: int) -> None:
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


def ranks_of(plan: Plan, jitter: Jitter) -> RankGrid:
    """The plan's ranks as an array, its slow ones by their position in it."""
    shards = plan.dp_shard
    return RankGrid(
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
