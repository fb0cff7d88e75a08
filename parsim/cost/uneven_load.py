"""What an uneven load of experts would add to a step whose load is assumed to be even.

    ln( layers' seconds, busiest rank with UNEVEN times the mean / layers' seconds, all alike )

Ranks that share experts wait for the one with most tokens. How a router spreads them is the data's
and the training's, which no prediction knows; published runs have it in their errors, a calibrated
machine's timed layers do not.

Source of UNEVEN: the middle of 1.1 to 2 times the mean (`expert_imbalance` of `software.yaml`); the
hardware suite's own runs of ten steps had 1.01 and 1.27 (reports/hardware/cpu-28-cases).
Leaves out: memory of the tokens that come, what waits elsewhere in the step.
"""

from __future__ import annotations

from dataclasses import replace
from math import log

import numpy as np

from parsim.cost.job import Job
from parsim.cost.step.layer_table import LayerTable
from parsim.plan import Plan, PlanTable

UNEVEN = 1.5
"""Tokens of the busiest rank over the mean of those that share its experts."""


def uneven_load(job: Job, plan: Plan, layers: LayerTable) -> float:
    """Logarithm of how many times as long a calibrated machine's step may take; 0 without experts.

    Args:
        job: model, cluster, software; a software that states its load is taken at its word.
        plan: the plan.
        layers: its layers' costs, one column.
    """
    stated = job.software.expert_imbalance != 1.0
    if stated or not job.device.calibrated or plan.ep == 1 or job.model.experts is None:
        return 0.0
    stack = replace(job.software, expert_imbalance=UNEVEN)
    uneven = LayerTable.of(replace(job, software=stack), PlanTable.of([plan]))
    return log(_seconds(job, uneven) / _seconds(job, layers))


def _seconds(job: Job, layers: LayerTable) -> float:
    """Seconds of all blocks, forward and backward of one micro-batch."""
    each = (float((x.forward.seconds + x.backward.seconds)[0]) for x in layers.kinds)
    return float(np.dot(job.model.kind_counts, list(each)))
