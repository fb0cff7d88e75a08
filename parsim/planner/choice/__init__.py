"""Choosing plan and cluster together: a job and node counts come in, the choices in order leave.

Each node count has its own search; what is chosen among their plans follows from an objective, a
deadline and a budget, and the choices that no other beats in time, memory and cost are marked.
"""

from parsim.planner.choice.choices import OBJECTIVES, Choice, Choices, Limits, read_objective
from parsim.planner.choice.choose import ChoiceRequest, choose, node_counts

__all__ = [
    "OBJECTIVES",
    "Choice",
    "ChoiceRequest",
    "Choices",
    "Limits",
    "choose",
    "node_counts",
    "read_objective",
]
