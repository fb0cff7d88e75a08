"""What a stack does and what that costs, by what it concerns; `Software` has all of it.

A field is a habit that costs or a choice that is left to the stack. `software.yaml` gives each its
value and the reason, all of a stack in one flat list.
"""

from parsim.cost.software.habits.convolutions import ConvolutionHabits
from parsim.cost.software.habits.exchanges import ExchangeHabits
from parsim.cost.software.habits.experts import DISPATCHERS, EXPERT_CHOICES, ExpertHabits
from parsim.cost.software.habits.hosts import HostHabits
from parsim.cost.software.habits.kernels import KernelHabits
from parsim.cost.software.habits.memory import MemoryHabits
from parsim.cost.software.habits.optimizer import OptimizerHabits
from parsim.cost.software.habits.plans import PlanHabits
from parsim.cost.software.habits.quantized import QuantizedHabits
from parsim.cost.software.habits.recomputation import RecomputeHabits
from parsim.cost.software.habits.sharding import ShardingHabits

__all__ = [
    "DISPATCHERS",
    "EXPERT_CHOICES",
    "ConvolutionHabits",
    "ExchangeHabits",
    "ExpertHabits",
    "HostHabits",
    "KernelHabits",
    "MemoryHabits",
    "OptimizerHabits",
    "PlanHabits",
    "QuantizedHabits",
    "RecomputeHabits",
    "ShardingHabits",
]
