"""What the training software does: fusion, launch cost, overlap, precision of gradients.

A stack's name and what a job sets of it enter, the record of the stack leaves. These are
assumptions, apart from hardware constants, the same for every run of a stack. They live with their
reasons in `cost/software.yaml` and are printed by `parsim validate -v`.
"""

from parsim.cost.software.catalog import GENERIC, software, software_catalog
from parsim.cost.software.habits import DISPATCHERS, EXPERT_CHOICES
from parsim.cost.software.record import Software
from parsim.cost.software.switches import SWITCHES, changed_switches, with_switches

__all__ = [
    "DISPATCHERS",
    "EXPERT_CHOICES",
    "GENERIC",
    "SWITCHES",
    "Software",
    "changed_switches",
    "software",
    "software_catalog",
    "with_switches",
]
