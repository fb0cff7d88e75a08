"""Which unequal stages are worth a simulation: numbers of replicas, and the layers that suit them.

    4 devices, 16 micro-batches        3-1 does not divide 16       2-1-1, 1-2-1, 1-1-2

Every stage takes micro-batches in turn, so that its replicas divide their number. Of each division
of the devices the partitioner finds the cut whose slowest stage is fastest; those whose slowest
stage alone is fast are simulated first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from parsim.cost.job import Job
from parsim.cost.legal import illegal
from parsim.partition.given_replicas import fastest_by_formula
from parsim.partition.hierarchy import Level, Options
from parsim.partition.priced import levels_of, priced_graph
from parsim.partition.simulated import Judge
from parsim.partition.states import states_of
from parsim.plan import Plan
from parsim.plan.divisors import divisors
from parsim.plan.stages import Stage

MOST_STAGES = 8
MOST_DIVISIONS = 400
"""Divisions of the devices that are cut, of each tensor-parallel degree and micro-batch."""


class Candidate(NamedTuple):
    """A plan and the seconds of its micro-batches on the slowest stage alone."""

    bound: float
    plan: Plan


def candidates(job: Job, like: Plan) -> list[Candidate]:
    """Legal plans with unequal stages and a plan's tensor-parallel degree and micro-batch.

    Those whose slowest stage is fastest come first.
    """
    groups = job.cluster.num_devices // like.tp
    count = like.global_batch_size // like.microbatch_size
    single = _single(like, count)
    # PipeDream reduces after each micro-batch, a pipeline that flushes once in a step
    states = states_of(priced_graph(job, single, sent=min(groups / count, 1.0)))
    levels = tuple(_shared_out(levels_of(job), like.tp))
    judge = Judge(states, levels, Options())
    listed = []
    for replicas in _divisions(groups, divisors(count), min(MOST_STAGES, len(states))):
        cut = fastest_by_formula(judge, replicas)
        stages = tuple(Stage(layers=part.end - part.first, replicas=part.replicas) for part in cut)
        plan = replace(single, pp=len(stages), stages=stages)
        if illegal(job, plan) is None:
            prices = judge.prices(cut)
            slowest = np.max((prices.forward + prices.backward) / np.array(prices.counts))
            listed.append(Candidate(float(slowest) * count, plan))
    return sorted(listed, key=lambda candidate: candidate.bound)


def _single(like: Plan, count: int) -> Plan:
    """What a plan with unequal stages keeps of a plan whose stages are alike."""
    return replace(
        like,
        pp=1,
        v=1,
        dp_replicate=1,
        dp_shard=1,
        cp=1,
        ep=1,
        zero_stage=0,
        schedule="1f1b",
        stage_layers=None,
        num_microbatches=count,
    )


def _shared_out(levels: tuple[Level, ...], tp: int) -> Iterator[Level]:
    """The levels of groups of tensor-parallel ranks, which lie inside a node."""
    yield Level(max(levels[0].units // tp, 1), levels[0].bandwidth)
    yield from levels[1:]


def _divisions(groups: int, allowed: list[int], most: int) -> Iterator[tuple[int, ...]]:
    """Numbers of replicas that sum to the groups, few stages first, at least two of them."""
    count = 0
    for stages in range(2, most + 1):
        for division in _sums(groups, stages, allowed):
            if count == MOST_DIVISIONS:
                return
            count += 1
            yield division


def _sums(total: int, parts: int, allowed: list[int]) -> Iterator[tuple[int, ...]]:
    """Ordered sums of so many allowed parts."""
    if parts == 1:
        if total in allowed:
            yield (total,)
        return
    for first in reversed(allowed):
        if first <= total - parts + 1:
            yield from ((first, *rest) for rest in _sums(total - first, parts - 1, allowed))
