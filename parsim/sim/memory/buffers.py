"""What stands on a rank for a moment, above static bytes and activations in flight.

Backward of a micro-batch is highest at its beginning, when all activations are still kept. Two
moments compete on the last stage, another on the first:

    head       logits and their gradient, the output projection's weight gradient, and tensors of
               the layers' width around it
    layer      at the top of a layer's backward: gradients as wide as the MLP, what recomputation
               makes again, the weight gradient
    embedding  at the end: a dense gradient of the token table, when the layers' are freed

When the last backward is over no activations are left, and the update may be higher still
(`parsim/sim/memory/update_moment.py`).

Source: what autograd keeps alive, checked on 17 stages of 15 B200 runs (SimuMax, mean 0.2 %).
Leaves out: the allocator (`parsim/sim/memory/reserved.py`), tensors that two streams keep alive; of
gradients that a step has not made yet see `parsim/sim/memory/fresh_gradients.py`.
"""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array, Flags
from parsim.cost.data.buckets import mean_bucket, reduced_bytes
from parsim.cost.job import Job
from parsim.cost.layer.head_copies import rank_outputs, rank_weights
from parsim.cost.layer.layers import recomputes_layers
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.stages import largest_layer_parameters, sent_bytes
from parsim.cost.step.step import stage_cut
from parsim.model.layer import Layer
from parsim.model.model import Model
from parsim.model.operators import Linear, Split
from parsim.plan import PlanTable, Recompute
from parsim.schedule import Schedule
from parsim.sim.memory.layer_moments import expert_rows, gathered_moment, repeated_beyond

HEAD_TENSORS = 3.0
"""Tensors of tokens x h beside the logits' gradient: the gradient of the head's input before and
after its norm, and the gathered input. B200 runs: 3.0 with tp = 1, 3.0 to 3.6 with more."""

LIVE = 1e9
"""Parameters that DeepSpeed leaves gathered: the default of its stage3_max_live_parameters."""

LAYER_TENSORS = 2.0
"""Tensors of tokens x h at the top of a layer's backward: its output's gradient, the residual's."""


def layer_moment(job: Job, table: PlanTable, layers: LayerTable) -> Array:
    """Bytes at the highest moment of a layer's backward, (B,).

    T (w / t + 2 h) values of gradients, w the outputs of the MLP's first product (2 f if gated):
    the gradient of its output and of the activation's, less the activation that is freed; what
    recomputation makes again; one weight's gradient, or under ZeRO-3 those of all that it gathers
    at once, their copy on the way to the shards, and the next parameters on their way.

    Attention that is recomputed alone comes after the MLP, whose gradients are gone by then; layers
    that are recomputed as a whole come after those that are not (`repeated_beyond`).
    """
    value = table.precision.activation
    columns = [op for op in _linears(job.model) if op.split is Split.COLUMN]
    around = LAYER_TENSORS * table.on_rank(job.model.border) * value
    each = [table.on_rank(op.tokens) * value * rank_outputs(op, table) for op in columns]
    products = np.max(each, axis=0) if each else np.zeros(len(table))
    gathered = gathered_moment(job, table)
    top = around + np.maximum(np.maximum(products, _experts_moment(job, table)), gathered)
    whole, kept = (np.max(np.stack(x), axis=0) for x in (layers.whole, layers.kept))
    region = job.software.recompute_region and bool(table.common.recompute_modules)
    again = np.where((table.recompute == Recompute.NONE) & (not region), 0.0, whole - kept)
    alone = (table.recompute == Recompute.SELECTIVE) & (job.software.selective == "attention")
    highest = np.where(alone, np.maximum(top, around + again), top + again)
    if recomputes_layers(table):
        highest = np.maximum(highest, top + repeated_beyond(job, table, layers))
    return np.asarray(highest + _weight_gradients(job, table))


def _experts_moment(job: Job, table: PlanTable) -> Array:
    """Gradients of a layer's experts at their highest, (B,).

    rows x max(2 h, h + f, (halves + 1) f) values, one after another: the outputs' gradients before
    and after the all-to-all, with those of the second product's input, these with those of the
    first product's outputs.
    """
    op = job.model.experts
    if op is None:
        return np.zeros(len(table))
    rows = expert_rows(job, table, op)
    h, f = op.width, op.ffn_hidden_size / table.etp
    widest = np.maximum(np.maximum(2.0 * h, h + f), (op.halves + 1) * f)
    return np.asarray(rows * widest * table.precision.activation)


def _weight_gradients(job: Job, table: PlanTable) -> Array:
    single = table.precision.activation * _widest_weight(job.model.updated, table)
    coming, gathered = gathered_at_once(job, table), table.precision.gathered
    trained = np.minimum(coming, largest_layer_parameters(job.model.updated, table))
    sharded = coming * gathered + trained * (gathered + reduced_bytes(table))
    fused = job.software.fused_gradient_accumulation
    return np.where(table.zero_stage == 3, sharded, np.where(fused, 0.0, single))


def gathered_at_once(job: Job, table: PlanTable) -> Array:
    """Parameters that ZeRO-3 holds gathered at a time, (B,): a layer.

    A stack that gathers each tensor by itself holds no more than LIVE, or one weight where that is
    larger.
    """
    layer = largest_layer_parameters(job.model, table)
    if job.software.gathers_per_layer == 1:
        return layer
    return np.asarray(np.minimum(layer, np.maximum(_widest_weight(job.model, table), LIVE)))


def _widest_weight(model: Model, table: PlanTable) -> Array:
    """Elements of the largest matrix on a rank, (B,)."""
    each = [rank_weights(op, table) for op in _linears(model)]
    return np.max(each, axis=0) if each else np.zeros(len(table))


def head_moment(job: Job, table: PlanTable) -> Array:
    """Bytes beside the logits at the top of the head's backward, (B,)."""
    value, last = table.precision.activation, job.model.layers[-1]
    tensors = HEAD_TENSORS * table.on_rank(last.inputs) * value
    wide = max((op.inputs * op.outputs for op in _products(last) if op.trained), default=0)
    return np.asarray(tensors + wide * value / table.tp)


def embedding_moment(job: Job, table: PlanTable) -> Array:
    """Bytes of the token table's dense gradient, (B,)."""
    lookup = job.model.lookup
    rows = lookup.vocab_size * lookup.width if lookup and lookup.trained else 0
    return np.asarray(rows / table.tp * table.precision.activation)


def logit_values(job: Job, table: PlanTable) -> Array:
    """Logits of a micro-batch on one rank, (B,).

    A model that begins with a vocabulary and ends without a loss is trained with one over that
    vocabulary beside it, whose logits count.
    """
    lookup = job.model.lookup
    counted = job.model.losses or ((lookup,) if lookup is not None else ())
    values, ranks = np.zeros(len(table)), 1 if job.software.whole_logits else table.tp
    for words in counted:
        values = values + table.on_rank(words.tokens) * words.vocab_size / ranks
    return values


def placeholder_bytes(job: Job, table: PlanTable) -> Array:
    """Empty weight gradients that fused accumulation hands to autograd, (B,).

    The product adds to the fp32 gradient in place, so autograd gets a tensor that nobody fills:
    Transformer Engine keeps one per shape of weight, for the whole run.
    """
    shapes = {(op.inputs, op.outputs): rank_weights(op, table) for op in _linears(job.model)}
    fused = job.software.fused_gradient_accumulation
    count = sum(shapes.values(), start=np.zeros(len(table)))
    size = fused * count * table.precision.activation
    op = job.model.experts
    if op is None:
        return np.asarray(size)
    routed = (op.halves + 1) * op.width * op.ffn_hidden_size * table.precision.activation
    return np.asarray(size + fused * routed / table.etp)


def communication_bytes(job: Job, table: PlanTable, by_rank: Array, schedule: Schedule) -> Array:
    """Staging of a gradient bucket, and messages that are on their way beside compute, (p, B).

    Fused accumulation has contiguous gradients, which are reduced in place; ZeRO-3's staging is
    part of its moments. A message that a stage waits for is the tensor it then works on; stages of
    PyTorch have buffers of their own for all of them (`stage_buffers.py`).
    """
    bucket = np.minimum(mean_bucket(job, table), by_rank) * reduced_bytes(table)
    apart = not job.software.fused_gradient_accumulation
    staged = np.where((table.dp * table.cp > 1) & (table.zero_stage < 3), apart * bucket, 0.0)
    passing = table.common.overlap_p2p and not job.software.torch_stages
    messages = 2.0 * _widest_messages(job, table, schedule) * passing
    return np.asarray(staged + np.where(table.pp > 1, messages, 0.0))


def _widest_messages(job: Job, table: PlanTable, schedule: Schedule) -> Array:
    """Bytes of the largest message that each rank sends or receives, (p, B)."""
    sent = sent_bytes(job.model, table, stage_cut(job, table))
    around = schedule.in_copies(np.maximum(sent, np.roll(sent, 1, axis=0)))
    ranks = [around[list(schedule.stages_on(rank))].max(axis=0) for rank in range(schedule.pp)]
    return np.stack(ranks)


def gathered_bytes(job: Job, table: PlanTable, schedule: Schedule, with_blocks: Flags) -> Array:
    """What ZeRO-3 gathers and holds beside a rank's shards, (p, B).

    What stands at once (the last stays from forward to backward), and embedding and head, which
    are one group that `fully_shard` leaves gathered until the backward is over. `with_blocks` (p,)
    says which ranks hold layers between the two.
    """
    out = with_blocks[:, None] * gathered_at_once(job, table)
    for stage, rank in enumerate(schedule.stage_rank):
        before = job.model.before if schedule.is_first(stage) else ()
        behind = job.model.behind if schedule.is_last(stage) else ()
        for part in (*before, *behind):
            out[rank] += part.split_parameters / table.tp + part.repeated_parameters
    return np.where(table.zero_stage == 3, out * table.precision.gathered, 0.0)


def _linears(model: Model) -> list[Linear]:
    return [op for layer in model.kinds for op in _products(layer)]


def _products(layer: Layer) -> list[Linear]:
    return [op for op in layer.operators if isinstance(op, Linear) and op.split is not Split.NONE]
