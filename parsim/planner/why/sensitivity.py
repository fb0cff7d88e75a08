"""How the best plan changes when its surroundings do: bandwidths, batch, sequence, devices.

Each change has its own search, so that the winner is that of all plans. Where the best plan is at
hand, the network at which the second best of another shape overtakes it is found by bisection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from parsim.cost.job import Job
from parsim.errors import InputError, NoFeasiblePlan, PlanError
from parsim.model.transformer import TransformerSpec
from parsim.plan import Plan, PlanSpace
from parsim.planner.ranked import Ranked
from parsim.planner.result import Progress
from parsim.planner.search import search
from parsim.planner.why.surroundings import on_network, surroundings
from parsim.results import Result
from parsim.sim.recurrence.evaluate import evaluate
from parsim.units import format_rate, format_seconds

SCHEMA_VERSION = 1
FARTHEST = 16.0
"""Times by which the network is made faster or slower in the search for a break-even."""
AMONG = 50
"""So many of the fastest plans are looked through for one of another shape."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing that is different, and the best plan then; None where nothing fits or is legal.

    `tokens_per_second` is that of the plan, `same_shape` whether its degrees are those of the best
    one as things are.
    """

    what: str
    plan: Plan | None
    step_time: float
    tokens_per_second: float
    same_shape: bool
    why_not: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain data with units in the names."""
        return {
            "change": self.what,
            "plan": self.plan and self.plan.to_json(),
            "step_time_s": self.step_time if self.plan else None,
            "tokens_per_s": self.tokens_per_second if self.plan else None,
            "same_degrees": self.same_shape,
            "why_not": self.why_not,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEven:
    """The network at which another plan is as fast as the best one, bytes/s of one interface."""

    other: Plan
    other_step_time: float
    bandwidth: float | None

    def to_json(self) -> dict[str, Any]:
        """Plain data with units in the names."""
        return {
            "plan": self.other.to_json(),
            "step_time_s": self.other_step_time,
            "nic_bandwidth_bytes_per_s": self.bandwidth,
        }


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Sensitivity(Result):
    """The best plan as things are, after each change, and where another one overtakes it."""

    best: Ranked
    changes: tuple[Change, ...]
    break_even: BreakEven | None
    nic_bandwidth: float | None

    @property
    def headline(self) -> str:
        """How many changes another plan wins."""
        moved = sum(not change.same_shape for change in self.changes)
        return (
            f"{self.best.plan.label()}: other degrees after {moved} of {len(self.changes)} changes"
        )

    def to_json(self) -> dict[str, Any]:
        """The block `sensitivity` of `parsim why --json`."""
        return {
            "schema_version": SCHEMA_VERSION,
            "best": self.best.to_json(),
            "changes": [change.to_json() for change in self.changes],
            "break_even": self.break_even and self.break_even.to_json(),
            "nic_bandwidth_bytes_per_s": self.nic_bandwidth,
        }

    def records(self) -> list[dict[str, Any]]:
        """One row per change."""
        return [
            {**change.to_json(), "plan": change.plan.label() if change.plan else None}
            for change in self.changes
        ]


def sensitivity(
    job: Job, spec: TransformerSpec, space: PlanSpace, *, progress: Progress | None = None
) -> Sensitivity:
    """Search again after each change of 20 % (the nearest that is possible), equal stages alone.

    Args:
        job: model, a cluster of one kind of node, software.
        spec: what the model was built from, for other sequence lengths.
        space: allowed values.
        progress: called with (changes done, changes in all).

    Raises:
        InputError: nodes of several kinds.
        PlanError: the space cannot hold a legal plan.
        NoFeasiblePlan: nothing fits as things are.
    """
    if job.mixed:
        raise InputError("what changes with the surroundings needs nodes of one kind")
    result = search(job, space, top=AMONG)
    best = result.plans[0]
    equal = replace(space, unequal_stages=False)  # simulating stages of their own takes seconds
    worlds = list(surroundings(job, spec, equal, best.plan))
    changes = []
    for done, (what, other, allowed) in enumerate(worlds, start=1):
        changes.append(_after(what, other, allowed, best.plan))
        if progress:
            progress(done, len(worlds))
    second = next((r for r in result.plans if _shape(r.plan) != _shape(best.plan)), None)
    network = job.system.network
    return Sensitivity(
        best=best,
        changes=tuple(changes),
        break_even=None if second is None else _break_even(job, best.plan, second),
        nic_bandwidth=None if network is None else network.nic_bandwidth,
    )


def _shape(plan: Plan) -> tuple[int, ...]:
    """Degrees and what is sharded: plans that differ in less are one way to train."""
    return (plan.tp, plan.pp, plan.dp, plan.cp, plan.ep, plan.zero_stage)


def _after(what: str, job: Job, space: PlanSpace, before: Plan) -> Change:
    """The best plan after a change."""
    try:
        ranked = search(job, space, top=1).plans[0]
    except (NoFeasiblePlan, PlanError) as error:
        return Change(
            what=what,
            plan=None,
            step_time=0.0,
            tokens_per_second=0.0,
            same_shape=False,
            why_not=str(error),
        )
    # dp follows from the devices
    same = _shape(replace(ranked.plan, dp_replicate=1, dp_shard=1)) == _shape(
        replace(before, dp_replicate=1, dp_shard=1)
    )
    return Change(
        what=what,
        plan=ranked.plan,
        step_time=ranked.step_time,
        tokens_per_second=ranked.tokens_per_second,
        same_shape=same,
    )


def _break_even(job: Job, best: Plan, second: Ranked) -> BreakEven:
    """The network at which the second best is as fast as the best."""
    network = job.system.network
    bandwidth = None
    if network is not None and job.cluster.num_nodes > 1:
        factor = _crossing(lambda f: _ahead(job, best, second.plan, f))
        bandwidth = None if factor is None else network.nic_bandwidth * factor
    return BreakEven(other=second.plan, other_step_time=second.step_time, bandwidth=bandwidth)


def _ahead(job: Job, best: Plan, second: Plan, factor: float) -> float:
    """Seconds by which the best plan is faster on a network of so many times the bandwidth."""
    other = on_network(job, factor)
    steps = [evaluate(other, plan, memory=False).step_time for plan in (second, best)]
    return steps[0] - steps[1]


def _crossing(ahead: Callable[[float], float]) -> float | None:
    """The factor nearest to 1 at which the sign changes, by bisection; None where there is none."""
    for end in (1.0 / FARTHEST, FARTHEST):
        if ahead(end) >= 0.0:
            continue
        inside, outside = 1.0, end
        for _ in range(20):
            middle = (inside * outside) ** 0.5
            if ahead(middle) >= 0.0:
                inside = middle
            else:
                outside = middle
        return inside
    return None


def bandwidth_words(result: Sensitivity) -> str:
    """Where the second best of other degrees overtakes the best."""
    even = result.break_even
    if even is None:
        return f"no plan of other degrees is among the {AMONG} fastest"
    other = f"{even.other.label()} ({format_seconds(even.other_step_time)})"
    text = f"second best of other degrees: {other}"
    if result.nic_bandwidth is None:
        return text
    if even.bandwidth is None:
        return (
            f"{text}; no network from 1/{FARTHEST:g} to {FARTHEST:g} times the bandwidth makes it "
            f"the faster one"
        )
    return (
        f"{text}; as fast at interfaces of {format_rate(even.bandwidth)} each (now "
        f"{format_rate(result.nic_bandwidth)}), if nothing else changes"
    )
