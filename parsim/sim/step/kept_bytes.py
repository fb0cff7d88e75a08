"""Bytes that a micro-batch keeps on each stage until its backward or W, or on a partner."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import numpy as np

from parsim.arrays import Array
from parsim.cost.job import Job
from parsim.cost.layer.head_copies import copied_outputs
from parsim.cost.layer.kept.operator_tensors import border_bytes
from parsim.cost.layer.kept.policy import product_input_bytes
from parsim.cost.step.costs import StepCosts
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.messages import partner_seconds
from parsim.cost.step.offload import freed_bytes
from parsim.cost.step.stages import layer_counts, over_kinds, sent_bytes
from parsim.cost.step.step import repeated_layers, stage_cut
from parsim.model.layer import Layer
from parsim.model.operators import Experts, Linear, Split
from parsim.plan import PlanTable, Recompute
from parsim.plan.names import SPLIT
from parsim.schedule import Kind, Schedule


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


def splits_like_torch(job: Job, table: PlanTable) -> bool:
    """Whether I and W are those of PyTorch's runtime: its own CSV, or a stack that is run by it.

    There I of stage 0 does nothing, as nobody needs the gradient of the model's input, and W is
    its whole backward; and activations stay until W. Megatron-LM with zero-bubble schedules takes
    the two products of each layer apart instead, on every stage.
    """
    from_user = table.common.actions is not None
    return from_user or job.software.eager or job.software.memory_family == "torchtitan"


def frees_before_weights(job: Job, table: PlanTable, schedule: str) -> bool:
    """Whether I leaves only what W needs under the named schedule."""
    return schedule in SPLIT and not splits_like_torch(job, table)


def is_split(schedule: Schedule) -> bool:
    """Whether any backward is in two actions."""
    return any(action.kind == Kind.I for action in chain.from_iterable(schedule.ranks))


def kept_for_weights(job: Job, table: PlanTable) -> Array:
    """Bytes that one micro-batch keeps on each stage between I and W, (S, B).

        F  everything that backward needs       I  gone: scores, masks, what norms and GELU kept
        W  the rest                                left: input and output gradient of each product

    PyTorch's runtime frees nothing of it before W; the papers' Megatron-LM does.

    A product Y = X W keeps X and the gradient of Y: tokens x (inputs + outputs) values, 32 s b h
    for a GPT layer in 16 bit. Sides that tensor parallelism splits are divided by tp, the others
    by tp with sequence parallelism. With full recomputation this is more than F left.

    Source: arXiv 2401.10241, table 1 (M_W = 32 s b h).
    Leaves out: an output gradient that two products share; the logits' gradient before the loss.
    """
    counts = layer_counts(job.model, stage_cut(job, table))
    rows: Array = counts @ np.stack(
        [_products(job, table, kind) for kind in job.model.updated.kinds]
    )
    return rows


def _products(job: Job, table: PlanTable, layer: Layer) -> Array:
    product, value = product_input_bytes(table), table.precision.activation
    kept = np.zeros(len(table))
    for op in layer.operators:
        tokens = table.on_rank(op.tokens)
        whole, split = tokens / table.sequence_split, tokens / table.tp
        if isinstance(op, Linear):
            inputs = split if op.split is Split.ROW else whole
            outputs = split if op.split is Split.COLUMN else whole
            kept = kept + product * inputs * op.inputs + value * outputs * op.outputs
            kept = kept + value * tokens * copied_outputs(op, table)
        elif isinstance(op, Experts):
            rows = whole * op.top_k * table.etp * job.software.expert_imbalance
            f = op.ffn_hidden_size / table.etp
            kept = kept + rows * (product + value) * op.width
            kept = kept + rows * (product + value * op.halves) * f
    return kept


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
    """Prices of passes that last at least as long as the messages beside them.

        rank r          | F k+1         | B i            | F j           |
                          k goes out      j goes out       an early one comes back

    Beside a forward one micro-batch's activations leave or come back, beside a backward too, so
    that with D seconds of a message of all that a stage keeps of it

        forward = max(F, D)      backward = max(B, D)

    on ranks that keep some on their partner. The partner's copies wait for nothing it computes.

    Source: Kim et al. 2023, section 3, which hides them so; `parsim/schedule/families/bpipe.py`.
    Leaves out: that nothing moves beside the first forwards and the last backwards, which are
    stretched all the same; that stages' messages share the link; multiprocessors that copies take;
    a load behind the warm-up that is longer than the wait for the first gradient.
    """
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
