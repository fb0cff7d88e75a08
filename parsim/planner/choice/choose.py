"""Search each of several cluster sizes and put their plans in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from parsim.cost.job import Job
from parsim.errors import InputError, NoFeasiblePlan
from parsim.plan import PlanSpace
from parsim.plan.rules.degrees import divisors
from parsim.planner.choice.choices import (
    MEASURES,
    Choice,
    Choices,
    Limits,
    Objective,
    check_goal,
    front_of,
)
from parsim.planner.result import Progress, SearchResult
from parsim.planner.search import search, search_front
from parsim.training_run import TrainingGoal
from parsim.units import counted, format_span

ENERGY_AMONG = 50
"""So many of the fastest plans of each cluster size are compared by energy."""


MOST_NAMED = 16
"""Cluster sizes that are listed one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceRequest:
    """What is asked of a choice: node counts, what to make least, limits, how many of each.

    `front` asks for all plans that none beats in step time and memory; `time_limit` is that of each
    search.
    """

    nodes: tuple[int, ...]
    objective: Objective = "time"
    limits: Limits = field(default_factory=Limits)
    top: int = 10
    front: bool = False
    time_limit: float | None = None


def node_counts(job: Job) -> tuple[int, ...]:
    """Cluster sizes to try where none are named, up to the cluster's own.

    Its divisors, and all sizes with four binary digits before zeros: each is at most an eighth
    above the one before.
    """
    nodes = job.cluster.num_nodes
    short = {
        digits << power
        for power in range(max(nodes.bit_length() - 3, 1))
        for digits in range(1, 16)
        if digits << power <= nodes
    }
    return tuple(sorted(short.union(divisors(nodes))))


def choose(
    job: Job,
    space: PlanSpace,
    goal: TrainingGoal,
    request: ChoiceRequest,
    *,
    progress: Progress | None = None,
) -> Choices:
    """Search each cluster size and order all plans by an objective.

    Args:
        job: model, a cluster, software; with nodes of several kinds of its own size alone.
        space: allowed values; the batch and what all plans share.
        goal: how long one trains at what price.
        request: node counts, objective, limits.
        progress: called with (cluster sizes done, cluster sizes in all).

    Raises:
        InputError: other sizes or a front of nodes of several kinds, nodes with places of their
            own, or an objective or limit that needs tokens, a price or a power that nobody states.
        NoFeasiblePlan: no plan fits, or none keeps to the limits; says what comes nearest.
    """
    check_goal(request.objective, request.limits, goal)
    _check_cluster(job, request.nodes)
    sizes = [_OfSize(nodes, _on(job, nodes)) for nodes in sorted(set(request.nodes))]
    tried = sizes[: _searched(sizes, space, goal, request, progress)]
    choices = [choice for size in sizes for choice in size.choices]
    left_out = {size.nodes: size.reason for size in sizes if size.reason}
    if not choices:
        raise NoFeasiblePlan(_nothing_kept(left_out))
    measure = MEASURES[request.objective]
    ordered = sorted(_marked(choices), key=lambda c: (measure(c), MEASURES["time"](c)))
    return Choices(
        choices=tuple(ordered if request.front else ordered[: request.top]),
        objective=request.objective,
        optimality=f"{_optimality(request, tried)}; {_sizes_words(tried)}",
        left_out=left_out,
        legal=sum(size.legal for size in sizes),
        front=request.front,
    )


def _searched(
    sizes: Sequence[_OfSize],
    space: PlanSpace,
    goal: TrainingGoal,
    request: ChoiceRequest,
    progress: Progress | None,
) -> int:
    """Search size after size; how many, as for the fewest devices the first that does is enough."""
    for done, size in enumerate(sizes, start=1):
        size.run(space, goal, request)
        if progress:
            progress(done, len(sizes))
        if size.choices and request.objective == "devices":
            return done
    return len(sizes)


@dataclass(slots=True)
class _OfSize:
    """One cluster size: its job, and what its search left."""

    nodes: int
    job: Job
    choices: list[Choice] = field(default_factory=list)
    reason: str = ""
    legal: int = 0
    proof: str = ""

    def run(self, space: PlanSpace, goal: TrainingGoal, request: ChoiceRequest) -> None:
        """Search, or say why no plan of this size can be chosen."""
        self.reason = _too_slow(self.job, goal, request.limits) or ""
        if self.reason:
            return
        try:
            result = _search(self.job, space, goal, request)
        except NoFeasiblePlan as error:
            self.reason = str(error)
            return
        self.proof = result.optimality
        self.legal = result.counts["enumerated"] - result.counts["illegal"]
        self.choices, broken = _within(self.job, result, request.limits)
        self.reason = "" if self.choices else broken


def _nothing_kept(left_out: Mapping[int, str]) -> str:
    """Why none of the sizes has a plan: of the largest ones."""
    last = list(left_out.items())[-3:]
    words = "; ".join(f"{counted(nodes, 'node')}: {why}" for nodes, why in last)
    return f"no choice keeps to what was asked: {words}"


def _on(job: Job, nodes: int) -> Job:
    """The job on so many nodes."""
    same = nodes == job.cluster.num_nodes
    return job if same else replace(job, cluster=replace(job.cluster, num_nodes=nodes))


def _check_cluster(job: Job, nodes: Sequence[int]) -> None:
    cluster = job.cluster
    if cluster.groups and not cluster.failed and {*nodes} == {cluster.num_nodes}:
        return  # no size but its own
    if cluster.groups or cluster.placement is not None or cluster.failed:
        raise InputError(
            "a choice among cluster sizes needs nodes of one kind, without cluster.placement and "
            "cluster.failed"
        )
    if cluster.system.network is None and max(nodes) > 1:
        raise InputError(
            f"system {cluster.system.id} has no network, so that nodes={max(nodes)} cannot be "
            f"joined; allowed: --nodes 1"
        )


def _search(job: Job, space: PlanSpace, goal: TrainingGoal, request: ChoiceRequest) -> SearchResult:
    if request.front or request.objective == "memory":
        return search_front(job, space, goal=goal, time_limit=request.time_limit)
    top = max(request.top, ENERGY_AMONG) if request.objective == "energy" else request.top
    return search(job, space, top=top, goal=goal, time_limit=request.time_limit)


def _too_slow(job: Job, goal: TrainingGoal, limits: Limits) -> str | None:
    """Why a cluster cannot meet the deadline, even if its devices never idled."""
    if limits.deadline is None or goal.tokens is None:
        return None
    flops = float(job.model.step_flops(1)) / job.model.tokens * goal.tokens
    fastest = max(max(device.peak_flops.values()) for device in job.cluster.devices)
    least = flops / (fastest * job.cluster.num_devices)
    if least <= limits.deadline:
        return None
    return (
        f"at the devices' highest peak rate the run alone takes {format_span(least)}, more than "
        f"the deadline of {format_span(limits.deadline)}"
    )


def _within(job: Job, result: SearchResult, limits: Limits) -> tuple[list[Choice], str]:
    """The plans of a search that keep to the limits, and why its first one does not."""
    cluster = job.cluster
    choices = [
        Choice(nodes=cluster.num_nodes, devices=cluster.num_devices, ranked=ranked)
        for ranked in result.plans
    ]
    kept = [choice for choice in choices if limits.broken(choice) is None]
    return kept, f"{choices[0].ranked.plan.label()} {limits.broken(choices[0])}"


def _marked(choices: Sequence[Choice]) -> Iterator[Choice]:
    """The choices, those marked that no other one beats in time, memory and cost."""
    points = [_point(choice) for choice in choices]
    for choice, best in zip(choices, front_of(points), strict=True):
        yield replace(choice, on_front=best)


def _point(choice: Choice) -> tuple[float, ...]:
    """Time, memory and cost; in place of dollars device-seconds, where no price is known."""
    run, ranked = choice.ranked.run, choice.ranked
    hours = ranked.step_time * choice.devices
    cost = hours if run is None or run.cost is None else run.cost.value
    return (MEASURES["time"](choice), ranked.peak_allocated, cost if cost < inf else hours)


def _sizes_words(sizes: Sequence[_OfSize]) -> str:
    """The cluster sizes that were looked at."""
    counts = [str(size.nodes) for size in sizes]
    shown = counts if len(counts) <= MOST_NAMED else [*counts[:3], "...", *counts[-4:]]
    return f"cluster sizes that were looked at: {', '.join(shown)} nodes (--nodes names others)"


def _optimality(request: ChoiceRequest, sizes: Sequence[_OfSize]) -> str:
    """What is proven of the order."""
    if request.time_limit is not None:
        return "each cluster size was searched for at most the time limit: best so far"
    if request.front or request.objective == "memory":
        return "proven at each cluster size that was looked at, up to twice its fastest plan's step"
    if request.objective == "energy":
        return f"least energy among the {ENERGY_AMONG} fastest plans of each cluster size: no proof"
    if sizes[0].job.mixed:  # of one size time, cost and devices have the same order
        return sizes[0].proof
    return "proven: at each cluster size that was looked at no other plan is better"
