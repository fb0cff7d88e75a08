"""Bytes at the top of an attention's backward where all keys and values are gathered for it.

    gathered K V, and the gradients of both       4 b s (kv heads / t) d values of the sequence
    the output's gradient, the queries'           as many as this rank's tokens have

The MLP behind it is done by then and keeps nothing any more, so that this is the highest moment of
a layer only where sequences are long or few heads of queries share keys.
"""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array
from parsim.cost.job import Job
from parsim.cost.layer.context import comm_type, keys_and_values
from parsim.cost.layer.kept.activations import whole_parts
from parsim.model.layer import Layer
from parsim.model.operators import Attention
from parsim.plan import CpCommType, PlanTable

BEHIND = ("mlp", "experts")
"""What a layer keeps that is gone when its attention goes back."""


def gathered_moment(job: Job, table: PlanTable) -> Array:
    """Bytes above what the layer's MLP keeps, (B,); 0 where nothing is gathered.

    A library that copies what it scatters (`Software.scatter_copies`) has the gradients twice.
    """
    if comm_type(job, table) is not CpCommType.ALL_GATHER or not (table.cp > 1).any():
        return np.zeros(len(table))
    moments = [
        _moment(job, table, layer, core) for layer in job.model.kinds for core in _cores(layer)
    ]
    return np.where(table.cp > 1, np.max(np.stack(moments), axis=0, initial=0.0), 0.0)


def _cores(layer: Layer) -> list[Attention]:
    return [op for op in layer.operators if isinstance(op, Attention)]


def _moment(job: Job, table: PlanTable, layer: Layer, core: Attention) -> Array:
    value = table.precision.activation
    whole = keys_and_values(job, table, core).size * (2.0 + job.software.scatter_copies)
    width = core.heads * (core.head_dim + core.output_dim)
    local = table.on_rank(core.tokens) * width / table.tp * value
    kept = whole_parts(layer, table)
    behind = sum((kept[name] for name in BEHIND if name in kept), start=np.zeros(len(table)))
    return np.asarray(whole + local - behind)
