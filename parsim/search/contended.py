"""The best plans of a search once more, on links that all their traffic shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from parsim.cluster.background import Background
from parsim.cluster.topology import build_graph
from parsim.cost.job import Job
from parsim.search.search import Progress, SearchResult
from parsim.sim.contention import NOTHING, Contention, simulate_contention

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
        moved = next((place for place, was in enumerate(order) if place != was), None)
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
            "plans": [{"place": i, **one.to_json()} for i, one in enumerate(self.plans, start=1)],
            "order": [place + 1 for place in self.order],
            "order_changes": bool(self.warning),
        }


def contended_order(
    job: Job,
    result: SearchResult,
    *,
    best: int = BEST,
    background: Background = NOTHING,
    progress: Progress | None = None,
) -> ContendedOrder:
    """Run the first plans of a search in tier C with contention.

    Args:
        job: model, cluster, software of the search.
        result: its plans, best first.
        best: how many of them.
        background: traffic beside each.
        progress: called with (plans done, plans in all).
    """
    chosen = result.plans[:best]
    graph = None if job.mixed else build_graph(job.cluster)  # there each plan places its ranks
    found = []
    for entry in chosen:
        found.append(simulate_contention(job, entry.plan, graph=graph, background=background))
        if progress:
            progress(len(found), len(chosen))
    return ContendedOrder(plans=tuple(found))
