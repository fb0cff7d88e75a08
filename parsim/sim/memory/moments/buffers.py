"""Bytes of the buffers that stand on a rank of eager PyTorch at each moment of its backward."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from parsim.arrays import Array
from parsim.cost.data.buckets import reduced_bytes
from parsim.cost.job import Job
from parsim.cost.layer.composed import WIDE, autocast_made, casts_weights, composed, widened
from parsim.cost.layer.kept.operator_tensors import border_bytes
from parsim.cost.layer.layers import recomputes_layers
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.offload import buffered_bytes
from parsim.cost.step.stages import largest_layer_parameters
from parsim.model.adapters import FIRST
from parsim.model.model import Model
from parsim.model.operators import Linear, Split
from parsim.plan import PlanTable, Recompute
from parsim.sim.memory.buffers import embedding_moment, logit_values
from parsim.sim.memory.layer_moments import (
    column_moment,
    exchanged_bytes,
    experts_moment,
    gathered_moment,
    repeated_beyond,
)
from parsim.sim.memory.moments.graph_walk import first_backward, graph_bytes, walked
from parsim.sim.memory.moments.pipeline import Moment
from parsim.sim.memory.moments.sharded import Sharded
from parsim.sim.memory.waiting import inner_moment


@dataclass(frozen=True, slots=True, kw_only=True)
class AtMoment:
    """Bytes at a moment, (B,): logits, temporary buffers, gathered parameters, activations gone.

    `gradients` are those that a first backward has made so far.
    """

    logits: Array
    temporary: Array
    gradients: Array
    gathered: Array
    gone: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffers:
    """Bytes of the moments' own buffers, (B,) each.

    `logit` are the logits as the head makes them, `logits` all that the loss holds at its peak,
    `softmax` what it saves for backward. `head`, `layer` and `embedding` stand at the top of the
    backward of those; `first` is a layer's while nothing has a gradient yet, and `first_gradients`
    the gradients that it makes. `inputs` stand at the highest of an I near its end. `gathered` are
    sharded parameters in backward, `gathered_at_loss` those at the loss and in forwards.
    `on_their_way` are activations between device and host.
    """

    softmax: Array
    logits: Array
    logit: Array
    head: Array
    layer: Array
    first: Array
    first_gradients: Array
    inputs: Array
    embedding: Array
    gathered: Array
    gathered_at_loss: Array
    sharded: Sharded
    on_their_way: Array

    @classmethod
    def of(cls, job: Job, table: PlanTable, layers: LayerTable) -> Buffers:
        """Price them for all plans."""
        logits, rows = logit_values(job, table), embedding_moment(job, table)
        alone = job.model.tied_embeddings and int(table.pp[0]) == 1
        backward, at_loss = pipelined_gathered_bytes(job, table)
        layer = layer_bytes(job, table, layers)
        head_is_trained = job.model.updated.layers[-1].parameters > 0
        first, first_gradients = first_backward(job, table, layer)
        return cls(
            softmax=logits * job.software.loss_saved,
            logits=logits * job.software.loss_kept,
            logit=logits * table.precision.activation,
            head=rows
            + border_bytes(table, job.model.layers[-1].inputs)
            + exchanged_bytes(job, table, job.model.layers[-1].inputs, trained=head_is_trained),
            layer=layer + alone * rows,
            first=first + alone * rows,
            first_gradients=first_gradients,
            inputs=inner_moment(job, table),
            embedding=rows + alone * 2.0 * rows,
            gathered=backward,
            gathered_at_loss=at_loss,
            sharded=Sharded.of(job, table, layers),
            on_their_way=buffered_bytes(job, table, layers),
        )

    def at(self, moment: Moment) -> AtMoment:
        """What stands there."""
        nothing = np.zeros_like(self.softmax)
        first = moment.what == "layer" and not any(moment.with_gradients)
        buffers = {
            "head": self.head,
            "layer": self.first if first else self.layer,
            "layer_below": self.layer,
            "inputs": self.inputs,
            "embedding": self.embedding,
        }
        gathered = nothing if moment.what == "update" else self.gathered
        if moment.what in ("loss", "forward"):
            gathered = self.gathered_at_loss
        travelling = self.sharded.at(moment)
        return AtMoment(
            logits=moment.softmax * self.softmax + self._logits(moment.what),
            temporary=buffers.get(moment.what, nothing) + travelling.gradients,
            gradients=self.first_gradients if first else nothing,
            gathered=gathered + travelling.gathered,
            gone=travelling.gone,
        )

    def _logits(self, what: str) -> Array:
        """Logits that are made then, and at the loss what is made of them."""
        return {"loss": self.logits, "head_forward": self.logit}.get(what, 0.0 * self.logits)


def layer_bytes(job: Job, table: PlanTable, layers: LayerTable) -> Array:
    """Gradients at the top of a layer's backward, and what recomputation makes again, (B,).

    The widest matrix that is split by inputs (the MLP's last): its weight's gradient, its input's
    (wider than the layer), its output's, and the residual's.
    """
    rows = walked(job, table)
    through = graph_bytes(job, table, rows, first=False)[0] if rows.any() else 0.0
    if rows.all():
        return np.asarray(through)
    return np.where(rows, through, _block_bytes(job, table, layers))


def _block_bytes(job: Job, table: PlanTable, layers: LayerTable) -> Array:
    """What `layer_bytes` says of blocks that are alike, (B,)."""
    highest = _row_gradients(job.model, table)
    for moment in (experts_moment, gathered_moment, column_moment):
        highest = np.maximum(highest, moment(job, table))
    around = 2.0 * border_bytes(table, job.model.border) * widened(table)
    return np.asarray(_made_again(job, table, layers) + highest + around)


def _made_again(job: Job, table: PlanTable, layers: LayerTable) -> Array:
    """What the largest layer keeps while it is computed again, beyond what it kept, (B,)."""
    whole, kept = (np.max(np.stack(x), axis=0) for x in (layers.whole, layers.kept))
    again = np.where(table.recompute == Recompute.NONE, 0.0, whole - kept)
    made = [
        composed(layer, table, job.software) + autocast_made(layer, table, job.software)
        for layer in job.model.kinds
    ]
    # what `composed_bytes` leaves out as it is not kept
    again = again + np.where(table.recompute == Recompute.FULL, np.max(np.stack(made), axis=0), 0.0)
    if recomputes_layers(table):
        again = np.maximum(again, repeated_beyond(job, table, layers))
    return np.asarray(again)


def _row_gradients(model: Model, table: PlanTable) -> Array:
    """Gradients of the input and the weight of the widest product that is split by inputs, (B,).

    A frozen weight has none; then two gradients of the input are the highest: an adapter's and its
    own before they are added, or what the activation ahead makes of it beside it.
    """
    wide = [
        (op.inputs, op.outputs, op.tokens, op.trained)
        for layer in model.kinds
        for op in layer.operators
        if isinstance(op, Linear) and op.split is Split.ROW and not op.name.endswith(FIRST)
    ]
    inputs, outputs, tokens, trained = max(wide, default=(0, 0, 0, True))
    value = float(table.precision.activation)
    # a cast weight's gradient is cast back
    weight = trained * inputs * outputs * (value + casts_weights(table) * WIDE)
    ways = 1 if trained else 2
    return np.asarray((ways * table.on_rank(tokens) * inputs * value + weight) / table.tp)


def pipelined_gathered_bytes(job: Job, table: PlanTable) -> tuple[Array, Array]:
    """(in backward, at the loss): what a pipeline's `fully_shard` holds beside the shards, (B,).

    Backward of a layer under ZeRO-3: its parameters, and the next layer's on their way (the
    collective and its copy); embedding and head are one group that stays gathered. ZeRO-2 keeps
    all parameters gathered beside the fp32 shards, and one layer's gradients on their way.
    """
    piped = table.pp > 1
    gathered, reduced = float(table.precision.gathered), reduced_bytes(table)
    layer = largest_layer_parameters(job.model, table)
    ends = sum(
        part.split_parameters / table.tp + part.repeated_parameters for part in job.model.ends
    )
    three, two = piped & (table.zero_stage == 3), piped & (table.zero_stage == 2)
    shards = job.model.parameters / table.tp / table.shards * table.precision.parameter
    at_loss = np.where(three, ends * gathered, np.where(two, shards, 0.0))
    backward = np.where(three, 3.0 * gathered * layer, np.where(two, 2.0 * reduced * layer, 0.0))
    return backward + at_loss, at_loss
