"""Plans with unequal stages that may stand in place of an equal one, each with a bound of its step.

A division of the devices is cut when its turn comes. Until then its bound is that of any cut: with
w_l the share of layer l in the seconds of one degree, and c_l(t) its seconds on t ranks,

    step >= m / sum over stages of (r_s / g(t_s)),     g(t) = min over layers of c_l(t) / w_l

because a stage with the share W of the layers takes at least g W / r a micro-batch and the shares
sum to 1; once with the device's seconds, once with the host's, which a stage takes at least.
Its cut is that whose slowest stage is fastest, and then, with T_s seconds forward and back on each
stage,

    step >= max over stages of (T_0 + ... + T_{s-1} + m T_s / r_s)

because a replica waits for the stages ahead before its first forward and behind its last backward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

import numpy as np

from parsim.arrays import Array
from parsim.cost.job import Job
from parsim.cost.legal import illegal
from parsim.partition.given_replicas import Share, fastest_by_formula, levels_of
from parsim.partition.levels import Level
from parsim.plan import CpCommType, Plan
from parsim.plan.names import AUTO
from parsim.plan.rules.degrees import divisors
from parsim.plan.stages import Stage, least_warmups
from parsim.planner.unequal.degree import PricedDegree
from parsim.planner.unequal.divisions import Division, Divisions, divisions


class BoundedPlan(NamedTuple):
    """A plan, with the seconds that its step and the bytes that a device takes at least.

    The plan is None where it is illegal.
    """

    bound: float
    bytes: float
    plan: Plan | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Divisions of the devices for one micro-batch, by the degrees that their stages may have.

    `least` are the g of each degree, of device and host, seconds.
    """

    job: Job
    single: Plan
    count: int
    levels: tuple[Level, ...]
    degrees: Mapping[int, PricedDegree]
    least: Mapping[int, Array]
    divisions: Divisions

    @classmethod
    def of(cls, job: Job, like: Plan, degrees: Sequence[int], room: float = inf) -> Family:
        """Divisions in place of a plan, with its micro-batch, precision and switches.

        Those whose ranks have too little `room`, bytes, for the model's states are left out: a
        stage with the share W of them needs W bytes / tp on each of its ranks.
        """
        count = like.global_batch_size // like.microbatch_size
        single, devices = _single(like, count, len(degrees) > 1), job.cluster.num_devices
        layers, narrow = job.model.num_layers, min(degrees)
        priced = dict(_priced(job, single, degrees))
        ranks = narrow * float(priced[narrow].bytes((layers,))[0]) / room
        return cls(
            job=job,
            single=single,
            count=count,
            levels=levels_of(job),
            degrees=priced,
            least=_least({tp: each.least for tp, each in priced.items()}),
            divisions=divisions(devices, divisors(count), degrees, layers, ranks),
        )

    def bound(self, division: Division) -> float:
        """Seconds that a step takes at least however the layers are cut."""
        paces = sum(part.replicas / self.least[part.tp] for part in division)
        return float(np.max(self.count / paces))

    def candidate(self, division: Division) -> BoundedPlan:
        """The division with its best cut by the partitioner's formula."""
        shares = [Share(part.replicas, self.degrees[part.tp].states, part.tp) for part in division]
        cut = [end - first for first, end, _ in fastest_by_formula(self.levels, shares)]
        first = division[0].tp
        stages = tuple(
            Stage(layers=layers, replicas=part.replicas, tp=None if part.tp == first else part.tp)
            for layers, part in zip(cut, division, strict=True)
        )
        plan = replace(self.single, tp=first, pp=len(stages), stages=stages)
        legal = illegal(self.job, plan) is None
        return BoundedPlan(
            bound=self._least_step(division, cut),
            bytes=self._least_bytes(division, cut),
            plan=plan if legal else None,
        )

    def _least_step(self, division: Division, cut: Sequence[int]) -> float:
        """What a step takes at least with this cut."""
        seconds = self._by_stage(division, lambda degree: degree.seconds(cut))
        replicas = np.array([part.replicas for part in division])
        ahead = np.cumsum(seconds) - seconds
        return float(np.max(ahead + self.count * seconds / replicas))

    def _least_bytes(self, division: Division, cut: Sequence[int]) -> float:
        """What the fullest device holds at least: its states, and what is in flight.

        A replica begins with w forwards and keeps one more until its first backward; in an order
        that is searched for it may keep no more than one.
        """
        replicas = np.array([part.replicas for part in division])
        begun = np.array(least_warmups([part.replicas for part in division])) + 1
        if self.single.schedule == AUTO:
            begun = np.ones_like(begun)
        kept = self._by_stage(division, lambda degree: degree.kept(cut))
        states = self._by_stage(division, lambda degree: degree.bytes(cut))
        return float(np.max(states + kept * np.minimum(begun, self.count // replicas)))

    def _by_stage(self, division: Division, each: Callable[[PricedDegree], Array]) -> Array:
        """A number of each stage, from those of all stages under each degree."""
        known = {tp: each(self.degrees[tp]) for tp in {part.tp for part in division}}
        return np.array([known[part.tp][stage] for stage, part in enumerate(division)])


def _single(like: Plan, count: int, several: bool) -> Plan:
    """What a plan with unequal stages keeps of a plan whose stages are alike.

    Stages of several degrees share neither tokens nor messages.
    """
    plan = replace(
        like,
        pp=1,
        v=1,
        dp_replicate=1,
        dp_shard=1,
        cp=1,
        cp_comm_type=CpCommType.DEFAULT,
        ep=1,
        etp=1,
        zero_stage=0,
        schedule=AUTO if like.schedule == AUTO else "1f1b",
        actions=None,
        stage_layers=None,
        num_microbatches=count,
    )
    return replace(plan, sequence_parallel=False, scatter_p2p=False) if several else plan


def _priced(job: Job, single: Plan, degrees: Sequence[int]) -> Iterator[tuple[int, PricedDegree]]:
    """The layers as ranks of each degree price them."""
    for tp in degrees:
        # PipeDream reduces after each micro-batch, a pipeline that flushes once in a step
        groups = job.cluster.num_devices // tp
        plan = replace(single, tp=tp)
        yield tp, PricedDegree.of(job, plan, sent=min(groups / single.num_microbatches, 1.0))


def _least(seconds: Mapping[int, Array]) -> dict[int, Array]:
    """The g of each degree, (2,), from each layer's seconds, (2, L)."""
    first = next(iter(seconds.values()))
    shares = first / first.sum(axis=1, keepdims=True)
    return {
        tp: np.min(np.divide(each, shares, out=np.full_like(each, inf), where=shares > 0.0), axis=1)
        for tp, each in seconds.items()
    }
