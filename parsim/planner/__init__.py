"""Searches: a job and a space of plans come in, the best plans and what became of the others leave.

Every legal plan is enumerated and bounded, in seconds and in bytes, without its schedule; those
that may be among the best are simulated, on nodes that differ with their placements. What fits is
ranked, a tight plan that is faster is told, and where nothing fits the nearest miss. What no search
looks at is told too (`left_out`).
"""

from parsim.planner.search import Ranked, SearchResult, search

__all__ = ["Ranked", "SearchResult", "search"]
