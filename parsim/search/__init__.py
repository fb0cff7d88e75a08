"""Search a space of plans: enumerate, filter by memory, evaluate, rank, explain."""

from parsim.search.search import Ranked, SearchResult, search

__all__ = ["Ranked", "SearchResult", "search"]
