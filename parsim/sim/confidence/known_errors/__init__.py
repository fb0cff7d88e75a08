"""What measured runs say about the errors of predictions: the figures of `interval.json`.

Networks have figures of their own (`interval_networks.json`), as another kind of model.

The standing of a plan enters; the measured group nearest to it and that group's errors leave.

Errors are log(measured / predicted), in units of a scale that says how hard a plan is to predict:

    scale^2 = sum over parts of (weight x share)^2      parts as in `sim/confidence/step_parts.py`

The scale's weights are one set for all runs; a group's quantiles say how well its device and
software are known; a level's factor says how many times that a question needs which is new in this
way. Computed from every shipped run (`fitting/intervals/figures.py`).
"""

from parsim.sim.confidence.known_errors.distances import (
    SLOWER,
    Range,
    Sizes,
    distance,
    outside,
    scale,
    told_outside,
)
from parsim.sim.confidence.known_errors.errors import (
    COVERAGE,
    KNOWN,
    LEVELS,
    WIDTH,
    Errors,
    stacks_of,
)
from parsim.sim.confidence.known_errors.groups import (
    ANY,
    CALIBRATED,
    Group,
    Key,
    MemoryGroup,
    NearestGroup,
    Standing,
    any_software,
)
from parsim.sim.confidence.known_errors.reading import (
    ADDED,
    errors_of,
    read_again,
    read_errors,
)

__all__ = [
    "ADDED",
    "ANY",
    "CALIBRATED",
    "COVERAGE",
    "KNOWN",
    "LEVELS",
    "SLOWER",
    "WIDTH",
    "Errors",
    "Group",
    "Key",
    "MemoryGroup",
    "NearestGroup",
    "Range",
    "Sizes",
    "Standing",
    "any_software",
    "distance",
    "errors_of",
    "outside",
    "read_again",
    "read_errors",
    "scale",
    "stacks_of",
    "told_outside",
]
