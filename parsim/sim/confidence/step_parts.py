"""The parts of a step by how hard they are to predict, known before anything runs.

A step is a sum of parts, and each part has an error of its own kind: kernels are known to a few
percent, launching by the host to some ten, collectives that nothing hides somewhere between.

    host       h / (1 + h)                     h = host seconds over device seconds of a layer
    exchange   exposed collectives / step      inside layers and after the last backward
    skew       host x exchange inside layers   hosts that wait for one another at each collective
    quantized  1 or 0                          8- or 4-bit products: recipes change with releases
    pressed    0 .. 1                          from 80 to 100 % of the memory: allocator retries

`skew` and `pressed` only make steps longer: the last host sets the pace, and retries cost time.

Source: errors of published runs by these figures, `reports/accuracy.md`; that runs near the memory
limit are slow and that hosts scatter by 20 %: `fitting/intervals/scale.py`.
Leaves out: bubbles (they scale with the kernels), the update (well known), the network's state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from parsim.cost.job import Job
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.stage_passes import RACE, host_share
from parsim.plan import Plan, precision
from parsim.sim.memory.reserved import reserved_bytes

IN_LAYERS = "exposed_communication"
AFTER = ("gradient_reduction", "gradient_norm", "parameter_gather")
"""Parts of a step's breakdown that are collectives."""
UNPRESSED = 0.8
"""Share of the memory above which a run may be slower."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Shares of a step, each from 0 to 1; `exchange` is `within` layers and `after` them."""

    host: float = 0.0
    within: float = 0.0
    after: float = 0.0
    quantized: float = 0.0
    pressed: float = 0.0

    @property
    def exchange(self) -> float:
        """All collectives that are exposed."""
        return self.within + self.after

    @property
    def skew(self) -> float:
        """Hosts that wait for one another."""
        return self.host * self.within

    @property
    def paced(self) -> float:
        """By how much of a change of the host's seconds a step changes, both relative.

        The derivative of the race between host and device, pnorm8 (`cost/step/stage_passes.py`).
        """
        device = (1.0 - self.host) ** RACE
        return self.host**RACE / (self.host**RACE + device)

    def value(self, name: str) -> float:
        """A share by its name; kernels are in every step."""
        return 1.0 if name == "kernels" else float(getattr(self, name))


def parts_of(
    job: Job, plan: Plan, layers: LayerTable, breakdown: Mapping[str, float], peak: float
) -> Parts:
    """Parts of one plan's step.

    Args:
        job: model, cluster, software.
        plan: the plan.
        layers: its layers' costs, one column.
        breakdown: seconds that sum to the step.
        peak: allocated bytes of the fullest rank.
    """
    step = sum(breakdown.values())
    ratio = float(host_share(job, layers)[0])
    reserved = float(reserved_bytes(job.software, np.array([peak]))[0])
    filled = (reserved + job.context_memory) / job.device.memory
    return Parts(
        host=ratio / (1.0 + ratio),
        within=_share(breakdown[IN_LAYERS], step),
        after=_share(sum(breakdown[name] for name in AFTER), step),
        quantized=float(precision(plan.precision).quantization is not None),
        pressed=min(max((filled - UNPRESSED) / (1.0 - UNPRESSED), 0.0), 1.0),
    )


def _share(part: float, whole: float) -> float:
    return min(max(part / whole, 0.0), 1.0) if whole > 0.0 else 0.0
