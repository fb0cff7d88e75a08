"""Spaces of plans: a job and allowed values come in, every legal plan of them leaves as one table.

Beside it, how many plans each rule refuses, and what no search of the space looks at (`left_out`).
"""

from parsim.planner.space.checks import check_space, nothing_legal
from parsim.planner.space.enumeration import Enumeration, enumerate_plans

__all__ = ["Enumeration", "check_space", "enumerate_plans", "nothing_legal"]
