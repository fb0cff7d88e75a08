"""Bytes that one micro-batch keeps on each stage between its forward and its backward."""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array
from parsim.cost.job import Job
from parsim.cost.layer.kept.operator_tensors import border_bytes
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.offload import freed_bytes
from parsim.cost.step.stages import over_kinds, sent_bytes
from parsim.cost.step.step import repeated_layers, stage_cut
from parsim.plan import PlanTable, Recompute


def stage_kept(job: Job, table: PlanTable, layers: LayerTable, counts: Array) -> Array:
    """Bytes one micro-batch keeps on each stage's device between forward and backward, (S, B).

    What is moved to the host is not on the device, of layers that are recomputed as a whole only
    the input is. A stack that checkpoints whole stages keeps what enters them alone, where it
    recomputes.
    """
    rows = layers_kept(layers, counts) - freed_bytes(job, table, layers, stage_cut(job, table))
    again = repeated_layers(job, table)
    if again is not None:
        rows = rows - over_kinds(again, np.stack(layers.dropped))
    if not job.software.checkpoints_stages:
        return rows
    return np.where(table.recompute == Recompute.FULL, entering_bytes(job, table), rows)


def layers_kept(layers: LayerTable, counts: Array) -> Array:
    """Bytes that the layers of each stage keep of a micro-batch, (S, B)."""
    rows = over_kinds(counts, np.stack(layers.kept))
    rows[0] += layers.before_kept
    rows[-1] += layers.behind_kept
    return rows


def entering_bytes(job: Job, table: PlanTable) -> Array:
    """Bytes of a micro-batch that enter each stage, (S, B)."""
    first = border_bytes(table, job.model.layers[0].inputs)
    sent = sent_bytes(job.model, table, stage_cut(job, table))
    return np.concatenate([np.asarray(first)[None, :], sent[:-1]])
