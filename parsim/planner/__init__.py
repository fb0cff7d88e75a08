"""Searches: a job and a space of plans come in, the best plans and what became of the others leave.

Every legal plan is enumerated, counted in memory, and evaluated where it fits or is tight; on nodes
that differ placements are taken best first under lower bounds. What fits is ranked, a tight plan
that is faster is told, and where nothing fits the nearest miss.
"""

from parsim.planner.search import Ranked, SearchResult, search

__all__ = ["Ranked", "SearchResult", "search"]
