"""Figures of a strategy that a DDP step does not have: rates, traffic, servers, ages, limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from parsim.sim.data_parallel.families.priced import Priced
from parsim.sim.data_parallel.holdings import Holdings
from parsim.sim.data_parallel.pace import Pace
from parsim.sim.data_parallel.workers import Workers
from parsim.sim.rounds.figures import StalenessFigures, StrategyFigures

SATURATED = 0.9
"""A queue that serves for so much of the time holds everybody back."""
EXPOSED = 0.1
"""A share of the step that is worth naming as what limits it."""
WAITS = {
    "synchronisation": "synchronisation",
    "gradient_reduction": "the reduction of gradients",
    "straggler": "stragglers",
    "optimizer": "the update",
}
"""Parts of a step that are not its passes, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyStep:
    """A step of a strategy as it came out; `parts` of its seconds are the mean over workers.

    `ran` is its pace without the share by which stragglers make steps grow.
    """

    workers: Workers
    priced: Priced
    ran: Pace
    seconds: float
    parts: dict[str, float]
    holding: Holdings


def strategy_figures(step: StrategyStep) -> StrategyFigures:
    """Rates, traffic, ages and servers."""
    workers, priced, ran = step.workers, step.priced, step.ran
    samples = workers.plan.global_batch_size
    alone = float((workers.compute + workers.optimizer_alone).mean()) * workers.count / samples
    busy = dict(sorted(ran.busy.items(), key=_idleness))
    return StrategyFigures(
        name=workers.plan.strategy.name,
        tier=ran.tier,
        workers=workers.count,
        samples_per_second=samples / step.seconds,
        alone=alone,
        sent=priced.sent,
        received=priced.received,
        limits=_limits(step, busy),
        **_servers(step),
        busy=busy,
        dropped=ran.dropped,
        updates_per_second=ran.updates,
        staleness=_staleness(workers, ran),
        roles=tuple(step.holding.devices),
        trains_otherwise=priced.changes_training,
        layout=priced.layout,
    )


def _servers(step: StrategyStep) -> dict[str, Any]:
    """What servers get, send and keep, by field of the figures."""
    wires = step.priced.wires
    return {
        "servers": len(wires.node) if wires else 0,
        "server_received": wires.received if wires else 0.0,
        "server_sent": wires.sent if wires else 0.0,
        "server_bytes": step.holding.server,
    }


def _idleness(queue: tuple[str, float]) -> tuple[float, bool]:
    """A key that sorts the busiest queue first; of those equal to rounding wires into something."""
    name, share = queue
    return -round(share, 9), not name.endswith(" in")


def _staleness(workers: Workers, ran: Pace) -> StalenessFigures | None:
    """How old the weights were that gradients were computed with; None: always the newest."""
    ages = ran.ages
    if ages is None or not len(ages.age):
        return None
    return StalenessFigures(
        mean=ages.mean,
        p50=ages.quantile(0.5),
        p95=ages.quantile(0.95),
        largest=int(ages.age.max()),
        shares=tuple(ages.share()),
        by_worker=tuple(ages.by_worker(workers.count)),
    )


def _limits(step: StrategyStep, busy: dict[str, float]) -> str:
    """What holds the strategy back, in words: a queue, a worker, or a part of the step."""
    if step.priced.together:
        return step.priced.together.limits(step.seconds)
    fullest = next(iter(busy), "")
    if fullest and busy[fullest] >= SATURATED:
        return f"{_queue_words(fullest)}, saturated ({100 * busy[fullest]:.0f} % busy)"
    if _waits_for_slowest(step):
        return "the slowest worker"
    part, share = _longest_wait(step.parts)
    if share <= EXPOSED:
        return "compute"
    words = f"{WAITS[part]}, {100 * share:.0f} % of the step"
    if fullest and part == "synchronisation":
        words += f"; busiest is {_queue_words(fullest)}, {100 * busy[fullest]:.0f} %"
    return words


def _waits_for_slowest(step: StrategyStep) -> bool:
    """Whether the slowest worker computes for nearly the whole step, and others do not."""
    compute, slowest = float(step.workers.compute.mean()), float(step.workers.compute.max())
    whole = sum(step.parts.values())
    return slowest > (1.0 + EXPOSED) * compute and slowest > (1.0 - EXPOSED) * whole


def _longest_wait(parts: dict[str, float]) -> tuple[str, float]:
    """The longest part of a step that is no pass, and its share of the step."""
    part = max(WAITS, key=lambda name: parts.get(name, 0.0))
    return part, parts.get(part, 0.0) / sum(parts.values())


def _queue_words(queue: str) -> str:
    """A queue's name in words: 'server 0 in' is the wire into server 0."""
    where, _, way = queue.rpartition(" ")
    words = {"in": f"the wire into {where}", "out": f"the wire out of {where}"}
    return words.get(way, queue)
