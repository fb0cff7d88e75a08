"""Reasons: a job and a wish come in; what the wish costs, or what forbids it, leaves.

Beside it, how the best plan changes when the network, the batch, the sequence or the number of
devices changes, and where the second best overtakes it.
"""

from parsim.planner.why.pins import read_pins
from parsim.planner.why.reasons import Reasons, reasons
from parsim.planner.why.sensitivity import Sensitivity, sensitivity

__all__ = ["Reasons", "Sensitivity", "read_pins", "reasons", "sensitivity"]
