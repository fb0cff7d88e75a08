"""Plans: how one training step is divided over devices, and which divisions are legal.

Degrees, a schedule and switches come in; a checked `Plan`, a `PlanTable` with one column a field
for many of them, or the reason why a plan is refused (`rules`) leave.
"""

from parsim.plan.fields import AXES, RANK_ORDER, REPLICAS_OUTSIDE
from parsim.plan.names import CpCommType, Recompute
from parsim.plan.precision import Precision, precision
from parsim.plan.record import Plan
from parsim.plan.space import PlanSpace
from parsim.plan.table import PlanTable

__all__ = [
    "AXES",
    "RANK_ORDER",
    "REPLICAS_OUTSIDE",
    "CpCommType",
    "Plan",
    "PlanSpace",
    "PlanTable",
    "Precision",
    "Recompute",
    "precision",
]
