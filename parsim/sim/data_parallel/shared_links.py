"""A strategy's rounds on links that all its traffic shares: which are full, and what that costs.

    worker 0   F  B |--push--|   UPDATE  |--pull--|       max-min fair shares of every link on the
    worker 1   F  B |--push--|           |--pull--|       way, in place of queues of interfaces

Where one link is all that messages share, it serves all at once what the queue of `simulate` serves
one by one: the last of equal messages comes at the same time. Links that the closed forms do not
know (switches inside the node, spines, rails) may hold back more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from parsim.cluster.background import Background, Stream
from parsim.cluster.groups import device_nodes
from parsim.cluster.topology import Graph
from parsim.cost.jitter import Jitter
from parsim.cost.job import Job
from parsim.cost.legal import check_legal
from parsim.errors import InputError
from parsim.plan import Plan
from parsim.sim.contention.contention import (
    NOTHING,
    Contention,
    contended_timeline,
    fabric_links,
    intact,
    placed_devices,
    placed_graph,
    simulate_contention,
)
from parsim.sim.contention.link_use import (
    LinkCurve,
    LoadHistory,
    bottleneck,
    class_uses,
    link_curves,
)
from parsim.sim.data_parallel.drawn import strategy_timeline
from parsim.sim.data_parallel.pace import pace
from parsim.sim.data_parallel.priced_strategy import PricedStrategy
from parsim.sim.data_parallel.traffic import role_of, strategy_traffic
from parsim.sim.events.fabric import Fabric, Watch
from parsim.sim.events.repeated_steps import stream_kinds, stream_role
from parsim.sim.recurrence.evaluate import evaluate
from parsim.timelines.timeline import Timeline

MOST_MESSAGES = 4_000
"""Messages of a run: each takes about a millisecond."""
LEAST_ROUNDS = 10
"""Rounds of each worker from which a rate is taken."""


def contention_of(
    job: Job,
    plan: Plan,
    *,
    background: Background = NOTHING,
    jitter: Jitter | None = None,
    graph: Graph | None = None,
    whole: Graph | None = None,
) -> Contention:
    """Run the step of a plan with any strategy on the links of its cluster.

    Args:
        job: model, cluster, software.
        plan: a legal plan.
        background: traffic beside the step; beside a strategy of its own such as has a rate.
        jitter: how workers differ where it matters who comes first; its slow ranks in any case.
        graph: the links, where they are others than the cluster's.
        whole: the links on which the closed forms hold; those of `graph` with nothing failed.

    Raises:
        PlanError: the plan is not legal.
        InputError: background that comes with steps, beside a strategy without them.
        CatalogError: the cluster's fabric cannot be built, or has no way for a message.
    """
    jitter = jitter or Jitter()
    if not plan.runs_own_program:
        slow = dict(jitter.slow_ranks)
        links = {"graph": graph, "whole": whole}
        return simulate_contention(job, plan, background=background, slow=slow, **links)
    run = _Run.of(job, plan, background, jitter, (graph, whole))
    return _contention(run, background, jitter)


def _contention(run: _Run, background: Background, jitter: Jitter) -> Contention:
    """Run rounds alone, on shared links, and there without what the background sends."""
    few, growth = _shorter(run.strategy), run.strategy.growth
    alone = pace(few, jitter).step_time * growth
    fabric, carrier = run.carrier(background.streams)
    shared = pace(few, jitter, carrier=carrier).step_time * growth
    quiet = None
    if background.streams:
        _, without = run.carrier(())
        quiet = pace(few, jitter, carrier=without).step_time * growth
    fabric.links.settle()
    fullest = bottleneck(fabric)
    share = shared / (growth * float(fabric.env.now)) if fullest else 1.0
    return Contention(
        plan=run.strategy.workers.plan,
        alone=alone,
        step_time=shared,
        bottleneck=fullest and fullest.times(share),
        classes=tuple(use.times(share) for use in class_uses(fabric)),
        quiet=quiet,
    )


def contended_timeline_of(
    job: Job, plan: Plan, *, background: Background = NOTHING, jitter: Jitter | None = None
) -> tuple[Timeline, tuple[LinkCurve, ...]]:
    """What every rank does on shared links, and what these carry; errors as `contention_of`."""
    jitter = jitter or Jitter()
    if not plan.runs_own_program:
        slow = dict(jitter.slow_ranks)
        return contended_timeline(job, plan, background=background, slow=slow)
    history: LoadHistory = []
    run = _Run.of(job, plan, background, jitter)
    fabric, carrier = run.carrier(
        background.streams, lambda now, loads: history.append((now, loads))
    )
    timeline = strategy_timeline(run.strategy, jitter, carrier)
    meta = {**timeline.meta, "contention": "tier C on shared links"}
    return replace(timeline, meta=meta), link_curves(fabric, history)


class OnFabric:
    """Carries what travels in tasks on the links of a fabric."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric, self.env = fabric, fabric.env
        self.tasks = {role.name for role in fabric.traffic.numbers[0]}

    @property
    def now(self) -> float:
        """The simulation's clock, seconds."""
        return float(self.env.now)

    @property
    def next(self) -> float:
        """When something happens next."""
        return float(self.env.peek())

    def step(self) -> None:
        """Let the next thing happen."""
        self.env.step()

    def wait(self, moment: float) -> None:
        """Advance the clock."""
        if moment > self.env.now:
            self.env.run(until=moment)

    def carries(self, task: str) -> bool:
        """Whether a task's traffic is known."""
        return task in self.tasks

    def carry(
        self, task: str, ends: tuple[int, ...], seconds: float, arrived: Callable[[float], None]
    ) -> None:
        """Send on the links of the task's role."""
        sending = self.env.process(self.fabric.send(0, role_of(task, ends), seconds))
        sending.callbacks.append(lambda _: arrived(self.now))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """A plan's priced strategy, and the links of its cluster."""

    strategy: PricedStrategy
    graph: Graph
    whole: Graph

    @classmethod
    def of(
        cls,
        job: Job,
        plan: Plan,
        background: Background,
        jitter: Jitter,
        links: tuple[Graph | None, Graph | None] = (None, None),
    ) -> _Run:
        """Price a plan and build its links."""
        check_legal(job, plan)
        jitter.check(plan.world_size)
        for stream in background.streams:
            if stream.rate is None:
                raise InputError(
                    f"background {stream.name}: beside strategy {plan.strategy.name} only streams "
                    f"with a rate are simulated; give it one, or leave it out"
                )
        strategy = PricedStrategy.of(evaluate(job, plan.whole_models), plan)
        graph = fabric_links(job, links[0] or placed_graph(job, plan), background)
        whole = links[1] or intact(job, plan, background) or graph
        return cls(strategy=strategy, graph=graph, whole=whole)

    def carrier(
        self, streams: Sequence[Stream], watch: Watch | None = None
    ) -> tuple[Fabric, OnFabric]:
        """Idle links, with the streams on them that have a rate."""
        workers = self.strategy.workers
        sent = strategy_traffic(workers, self.strategy.priced, self.graph, self.whole)
        job = workers.job
        nodes = device_nodes(job.cluster)
        sent |= stream_kinds(self.graph, streams, placed_devices(job, self.graph), nodes)
        fabric = Fabric([sent], self.graph, watch)
        for index in range(len(streams)):
            fabric.carry(0, stream_role(index), float("inf"))
        return fabric, OnFabric(fabric)


def _shorter(strategy: PricedStrategy) -> PricedStrategy:
    """Where it matters who comes first: with as many rounds as can be run in some seconds."""
    program = strategy.priced.program
    if not program.depends_on_arrival:
        return strategy
    messages = sum(bool(task.routes) for task in program.tasks) * strategy.workers.count
    rounds = min(program.rounds, max(LEAST_ROUNDS, MOST_MESSAGES // messages))
    fewer = replace(program, rounds=rounds, steps=rounds)
    return replace(strategy, priced=replace(strategy.priced, program=fewer))
