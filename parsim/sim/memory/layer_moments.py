"""Bytes at the highest moments of a layer's backward.

The first is the top of an attention's backward where all keys and values are gathered for it:

    gathered K V, and the gradients of both       4 b s (kv heads / t) d values of the sequence
    the output's gradient, the queries'           as many as this rank's tokens have

The MLP behind it is done by then and keeps nothing any more, so that this is the highest moment of
a layer only where sequences are long or few heads of queries share keys.

Bytes at the backward of a product split by columns whose input lies divided over the sequence.

    T h of whole tokens each    what is gathered of the input, and again in the order of tokens; the
                                input's gradient, again in the order of ranks, and the library's
                                copy while it is scattered
    T h / t                     this rank's part of that gradient

One sequence to a micro-batch is in order as it comes, without the second copies; for a frozen
weight nothing is gathered of the input. The output
projection and an MLP's first product are highest so, the latter where the MLP's activations, gone
by then, are fewer.

Bytes at the backward of a layer's experts, R rows of width h and E experts of width f on the rank,
one of three moments:

    second product   R (h + f), E f h       its output's and input's gradients, its weights'
    activation       R f (2 halves)         its output's gradient and that times the rows' weights,
                                            its input's, and a product, less what was the second
                                            product's input
    first product    R h, E f h halves      its input's and weights' gradients; its output's takes
                                            the place of that output, and the second's input is gone

A stack that checkpoints a stage as a whole makes all of its layers' activations again at once.

Source: `executor/parallel/columns.py`, `executor/model/mixture/grouped.py`; allocations recorded
operator by operator (torch 2.13, CPU).
"""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array, Ints
from parsim.cost.job import Job
from parsim.cost.layer.composed import WIDE, casts_weights, composed, composed_kept
from parsim.cost.layer.context import comm_type, keys_and_values
from parsim.cost.layer.head_copies import rank_outputs
from parsim.cost.layer.kept.activations import whole_parts
from parsim.cost.layer.kept.operator_tensors import border_bytes
from parsim.cost.step.layer_table import LayerTable
from parsim.model.adapters import SECOND
from parsim.model.layer import Layer
from parsim.model.operators import Attention, Experts, Linear, Split
from parsim.plan import CpCommType, PlanTable, Recompute
from parsim.schedule import Schedule
from parsim.sim.step.kept_bytes import entering_bytes

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


def exchanged_bytes(job: Job, table: PlanTable, values: int, *, trained: bool = True) -> Array:
    """Whole tensors of so many values a sample beside the rank's part, (B,); 0 if not divided."""
    each = 1.0 + (table.microbatch_size > 1)
    copies = (1.0 + trained) * each + job.software.scatter_copies
    whole = table.on_rank(values) * table.precision.activation
    return np.where(table.sequence_split > 1, copies * whole, 0.0)


def expert_rows(job: Job, table: PlanTable, op: Experts) -> Array:
    """Rows that a rank's experts work on in a layer, those of the busiest rank, (B,)."""
    arrived = table.on_rank(op.tokens) / table.sequence_split
    return np.asarray(arrived * op.top_k * table.etp * job.software.expert_imbalance)


def experts_moment(job: Job, table: PlanTable) -> Array:
    """Bytes above what a layer keeps when its experts go back, (B,); 0 of models without experts.

    A cast weight's gradient stands beside the one that it is cast back to.
    """
    op = job.model.experts
    if op is None:
        return np.zeros(len(table))
    rows = expert_rows(job, table, op) * table.precision.activation
    h, f = op.width, op.ffn_hidden_size / table.etp
    matrix = f * h * op.count / table.ep * op.trained
    matrix = matrix * (table.precision.activation + casts_weights(table) * WIDE)
    second = rows * (h + f) + matrix
    activation = rows * 2.0 * op.halves * f
    first = rows * (h - f) + op.halves * matrix
    return np.asarray(np.maximum(np.maximum(second, activation), first))


def column_moment(job: Job, table: PlanTable) -> Array:
    """Bytes above what a layer keeps when its last product by columns goes back, (B,)."""
    moments = [_columns(job, table, layer) for layer in job.model.kinds]
    return np.where(table.sequence_split > 1, np.max(np.stack(moments), axis=0), 0.0)


def _columns(job: Job, table: PlanTable, layer: Layer) -> Array:
    columns = (op for op in layer.operators if isinstance(op, Linear) and op.split is Split.COLUMN)
    products = [op for op in columns if not op.name.endswith(SECOND)]
    if not products:
        return np.zeros(len(table))
    last, value = products[-1], table.precision.activation
    rows = table.on_rank(last.tokens) + last.trained * last.inputs
    outputs = rows * rank_outputs(last, table) * value
    entering = border_bytes(table, last.tokens * last.inputs)
    behind = whole_parts(layer, table).get("mlp", entering) - entering
    gone = behind + composed(layer, table, job.software)
    values = last.tokens * last.inputs
    return exchanged_bytes(job, table, values, trained=last.trained) + outputs - gone


def repeated_beyond(job: Job, table: PlanTable, layers: LayerTable) -> Array:
    """Bytes that such a layer makes again beyond what others of its stage kept, (B,), at least 0.

        backward of a stage   layer 3   layer 2   layer 1              layer 0
                              kept      kept      all is made again    all is made again
                                                  3 and 2 are gone     3, 2 and 1 are gone

    Of each stage the first layers are recomputed and so go back last: what the others kept of that
    micro-batch is free by then.

    max over kinds (whole - input) - (layers of a stage - recomputed ones) x least kept of a layer

    0 of plans that recompute no number of layers.

    Leaves out: that larger stages than the smallest have more other layers, whose bytes are gone.
    """
    software, kinds = job.software, job.model.kinds
    entering = np.stack([border_bytes(table, layer.inputs) for layer in kinds])
    made, kept = np.stack(layers.whole) - entering, np.stack(layers.kept)
    again = made.max(axis=0)
    if software.eager:
        again = again + np.max(np.stack([composed(layer, table, software) for layer in kinds]), 0)
        kept = kept + np.stack([composed_kept(layer, table, software) for layer in kinds])
    beyond = again - _others(job, table) * kept.min(axis=0)
    return np.where(table.recompute_layers > 0, np.maximum(beyond, 0.0), 0.0)


def _others(job: Job, table: PlanTable) -> Ints:
    """Layers of the smallest stage that has any beyond its recomputed ones, (B,)."""
    cut = table.common.stage_layers
    smallest = min(filter(None, cut)) if cut else job.model.num_layers // (table.pp * table.v)
    return np.asarray(np.maximum(smallest - table.recompute_layers, 0))


def stage_again(
    job: Job, table: PlanTable, layers: LayerTable, counts: Array, schedule: Schedule
) -> Array:
    """What recomputing a whole stage makes beyond its most costly layer, (p, B)."""
    if not job.software.checkpoints_stages:
        return np.zeros((schedule.pp, len(table)))
    whole = counts @ np.stack(layers.whole)
    most = np.max(np.stack(layers.whole) - np.stack(layers.kept), axis=0)
    beyond = np.maximum(whole - entering_bytes(job, table) - most, 0.0)
    again = np.where(table.recompute == Recompute.FULL, beyond, 0.0)
    again = schedule.in_copies(again)
    ranks = [again[list(schedule.stages_on(rank))].max(axis=0) for rank in range(schedule.pp)]
    return np.stack(ranks)
