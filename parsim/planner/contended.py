"""The best plans of a search once more, on links that all their traffic shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from parsim.cluster.background import Background
from parsim.cluster.topology import build_graph
from parsim.cost.job import Job
from parsim.planner.search import Progress, SearchResult
from parsim.sim.contention.contention import NOTHING, Contention
from parsim.sim.data_parallel.shared_links import contention_of

BEST = 5
"""How many plans are worth the seconds that tier C takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContendedOrder:
    """The best plans in the search's order, with what contention makes of each."""

    plans: tuple[Contention, ...]

    @property
    def order(self) -> tuple[int, ...]:
        """Places in the search's order, from 0, by step time with contention."""
        return tuple(sorted(range(len(self.plans)), key=lambda i: (self.plans[i].step_time, i)))

    @property
    def warning(self) -> str:
        """What to say where contention changes the order; empty where it does not."""
        order = self.order
        moved = next((rank for rank, was in enumerate(order) if rank != was), None)
        if moved is None:
            return ""
        faster, slower = self.plans[order[moved]], self.plans[moved]
        where = slower.bottleneck
        full = f" ({where.link} is full for {where.saturated:.3g} s)" if where else ""
        return (
            f"contention changes the order: #{order[moved] + 1} {faster.plan.label()} takes "
            f"{faster.step_time:.4g} s on shared links, #{moved + 1} {slower.plan.label()} "
            f"{slower.step_time:.4g} s{full}"
        )

    def to_json(self) -> dict[str, Any]:
        """The block `contention` of `parsim search --json`; `order` counts places from 1."""
        return {
            "plans": [
                {"place": number, **contention.to_json()}
                for number, contention in enumerate(self.plans, start=1)
            ],
            "order": [index + 1 for index in self.order],
            "order_changes": bool(self.warning),
        }


def contended_order(
    job: Job,
    result: SearchResult,
    *,
    background: Background = NOTHING,
    progress: Progress | None = None,
) -> ContendedOrder:
    """Run the first `BEST` plans of a job's search in tier C, with `background` beside each.

    `progress` is called with (plans done, plans in all).
    """
    chosen = result.plans[:BEST]
    graph = None if job.mixed else build_graph(job.cluster)  # there each plan places its ranks
    contentions = []
    for entry in chosen:
        contentions.append(contention_of(job, entry.plan, graph=graph, background=background))
        if progress:
            progress(len(contentions), len(chosen))
    return ContendedOrder(plans=tuple(contentions))
