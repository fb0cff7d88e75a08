"""Searches: a job and a space of plans come in, the best plans and what became of the others leave.

Every legal plan is enumerated, counted in memory, and evaluated where it fits; on nodes that differ
placements are taken best first under lower bounds. Where nothing fits, the nearest miss is told.
"""

from parsim.planner.search import Ranked, SearchResult, search

__all__ = ["Ranked", "SearchResult", "search"]
