"""The functions of `import parsim`: scenarios and saved files come in, results leave.

Each is what the command of its name calls. A scenario stands for its job and plan; a `Job` and a
`Plan` (or a `PlanSpace`) do as well. What a function needs is loaded when it is called.
"""

from parsim.api.plans import Progress, Sighted, search, simulate, whole_run
from parsim.api.tables import SIZES, collectives, validate
from parsim.api.timelines import compare, timeline
from parsim.arguments import File

__all__ = [
    "SIZES",
    "File",
    "Progress",
    "Sighted",
    "collectives",
    "compare",
    "search",
    "simulate",
    "timeline",
    "validate",
    "whole_run",
]
