"""Activations that a rank keeps on its partner: what sending and getting them back takes.

    rank r          | F k+1         | B i            | F j           |
                      k goes out      j goes out       an early one comes back

Beside a forward one micro-batch's activations leave or come back, beside a backward too, so that
with D seconds of a message of all that a stage keeps of it

    forward = max(F, D)      backward = max(B, D)

on ranks that keep some on their partner. The partner's copies wait for nothing it computes.

Source: Kim et al. 2023, section 3, which hides them so; `parsim/schedule/families/bpipe.py`.
Leaves out: that nothing moves beside the first forwards and the last backwards, which are stretched
all the same; that stages' messages share the link; multiprocessors that copies take; a load behind
the warm-up that is longer than the wait for the first gradient.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from parsim.arrays import Array
from parsim.cost.job import Job
from parsim.cost.step.hops import partner_seconds
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.stages import layer_counts
from parsim.cost.step.step import StepCosts, stage_cut
from parsim.plan import PlanTable
from parsim.schedule import Schedule
from parsim.sim.step.kept_bytes import stage_kept


def evicted_bytes(job: Job, table: PlanTable, layers: LayerTable, schedule: Schedule) -> Array:
    """Bytes of a micro-batch that each rank sends to its partner, (p, B); 0 where none go."""
    counts = layer_counts(job.model, stage_cut(job, table))
    sends = np.array(schedule.guests[::-1]) > 0
    return np.asarray(sends[:, None] * stage_kept(job, table, layers, counts))


def eviction_seconds(job: Job, table: PlanTable, layers: LayerTable, schedule: Schedule) -> Array:
    """Seconds of sending a micro-batch's activations to the partner, or back, (p, B)."""
    if schedule.limit is None:
        return np.zeros((schedule.num_stages, len(table)))
    sent = evicted_bytes(job, table, layers, schedule)
    return np.where(sent > 0.0, partner_seconds(job, table, sent), 0.0)


def with_evictions(
    job: Job, table: PlanTable, layers: LayerTable, costs: StepCosts, schedule: Schedule
) -> StepCosts:
    """Prices of passes that last at least as long as the messages beside them."""
    messages = eviction_seconds(job, table, layers, schedule)
    ahead = np.maximum(messages - costs.forward, 0.0)
    behind = np.maximum(messages - costs.backward, 0.0)
    return replace(
        costs,
        forward=costs.forward + ahead,
        backward=costs.backward + behind,
        exposed_forward=costs.exposed_forward + ahead,
        exposed_backward=costs.exposed_backward + behind,
        copied_forward=ahead,
        copied_backward=behind,
    )
