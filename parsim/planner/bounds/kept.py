"""Bytes on the few ranks that bounds look at: kept for the whole run, a micro-batch, a moment.

Nothing of it depends on how replicas share states or on the schedule, so that it is computed once
for all plans with equal degrees, micro-batch, recomputation and chunks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from parsim.arrays import Array, Columns, Flags, Num
from parsim.cost.data.buckets import mean_bucket, reduced_bytes
from parsim.cost.data.static_bytes import Weights, static_bytes
from parsim.cost.job import Job
from parsim.cost.layer.composed import widened
from parsim.cost.layer.kept.operator_tensors import border_bytes
from parsim.cost.layer.layers import recomputes_layers
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.offload import buffered_bytes, offloads
from parsim.cost.step.stages import largest_layer_parameters, stage_weights, trained_weights
from parsim.plan import PlanTable, Recompute
from parsim.planner.bounds.parts import TellingParts
from parsim.planner.bounds.schedules import Flights
from parsim.planner.bounds.work import borders, offloaded
from parsim.sim.memory.buffers import (
    embedding_moment,
    head_moment,
    layer_moment,
    logit_values,
    placeholder_bytes,
)
from parsim.sim.memory.eager_kept import composed_bytes, in_buckets
from parsim.sim.memory.fresh_gradients import makes_gradients
from parsim.sim.memory.waiting import behind_trained
from parsim.sim.step.kept_bytes import layers_kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept(Columns):
    """Bytes of one micro-batch, (Q, C) for Q ranks of C plans.

    `first` is what a rank keeps of its first chunk, `last` of its last one, `least` of the one with
    the least, `every` of all; `moment` what a backward adds at its highest, `lasting` what of it
    stands at any moment, `scores` what each further micro-batch in flight on the last stage keeps
    of its logits, 0.0 where no plan does.
    """

    first: Array
    last: Array
    least: Array
    every: Array
    moment: Array
    lasting: Array
    scores: Num

    @classmethod
    def of(cls, job: Job, table: PlanTable, layers: LayerTable, parts: TellingParts) -> Kept:
        """Count the ranks of a table with equal numbers of ranks that stand for all."""
        kept = _kept(job, table, layers, parts)
        lasting = _lasting(job, table, layers, parts)
        moment, scores = _moments(job, table, layers, parts, kept)
        least = parts.least(kept)
        return cls(
            first=np.where(parts.on_rank[:, 0] > 0, kept[0], least),
            last=np.where(_last_rank(parts), kept[-1], least),
            least=least,
            every=parts.sums(kept),
            moment=lasting + moment,
            lasting=lasting,
            scores=scores,
        )

    def in_flight(self, flights: Flights) -> tuple[Array, Array]:
        """(bytes that fill, bytes beside them): of so many micro-batches, (Q, C).

        Of several chunks a rank the first and the last hold what their schedule says, the others
        the least.
        """
        filled = flights.every * self.every
        if flights.by_chunk.any():
            beyond = flights.first * (self.first - self.least)
            beyond += flights.last * (self.last - self.least)
            filled = np.where(flights.by_chunk, beyond + flights.total * self.least, filled)
        return filled, np.asarray(self.moment + (flights.every - 1) * self.scores)


def _dropped(table: PlanTable, layers: LayerTable, parts: TellingParts) -> tuple[Num, Num]:
    """(least, most) bytes that such layers of each kind of stage keep less, (R, C) each, or 0.0."""
    if not recomputes_layers(table):
        return 0.0, 0.0
    some = np.minimum(table.recompute_layers, parts.counts.sum(axis=1))
    dropped = np.stack(layers.dropped)
    return some * dropped.min(axis=0), some * dropped.max(axis=0)


def _kept(job: Job, table: PlanTable, layers: LayerTable, parts: TellingParts) -> Array:
    """Bytes that a micro-batch keeps on each kind of stage at the least, (R, C).

    Of a stack that checkpoints whole stages nothing counts. In eager PyTorch messages are received
    into buffers of their own, and what a stage received is not kept twice.
    """
    kept = layers_kept(layers, parts.counts)
    if offloads(table) and not job.system.on_cpu:
        kept = kept - offloaded(table, layers, parts)[1]
    kept = kept - _dropped(table, layers, parts)[1]
    if job.software.checkpoints_stages:
        kept = np.where(table.recompute == Recompute.FULL, 0.0, kept)
    if not job.software.eager:
        return kept
    widest = np.max(np.stack([border_bytes(table, values) for values in borders(job)]), axis=0)
    received = np.repeat(widest[None, :] * widened(table), len(kept), axis=0)
    received[0] = 0.0
    kept = kept + composed_bytes(job, table, parts.counts) - received
    return np.asarray(kept - _released(job, table))


def _released(job: Job, table: PlanTable) -> Num:
    """Most bytes that any stage lets go of between F and W, where I ends, (C,); see `sim/memory`.

    Leaves out: that whole backwards let go of nothing before they end.
    """
    if job.model.trained is None:
        return 0.0
    kinds = [behind_trained(layer, table, job.software) for layer in job.model.kinds]
    ends = [behind_trained(layer, table, job.software) for layer in job.model.behind]
    return np.asarray(np.max(np.stack(kinds), axis=0) + sum(ends))


def _lasting(job: Job, table: PlanTable, layers: LayerTable, parts: TellingParts) -> Array:
    """Workspaces, placeholders of weight gradients, and what leaves for the host, (Q, C)."""
    blocks = parts.sums(parts.counts.sum(axis=1)) > 0
    stays = blocks * buffered_bytes(job, table, layers) + job.software.workspace
    if job.software.eager:
        return np.asarray(stays)
    return np.asarray(stays + blocks * placeholder_bytes(job, table))


def _moments(
    job: Job, table: PlanTable, layers: LayerTable, parts: TellingParts, kept: Array
) -> tuple[Num, Num]:
    """(highest moment of a backward, logits of each further micro-batch), (Q, C) each.

    Beside what lasts. Of eager PyTorch, whose moments a walk along the actions finds, nothing; of
    PyTorch's stages no message, for the last one may have none on their way.
    """
    if job.software.eager:
        return 0.0, 0.0
    # without what the layers that are recomputed as a whole make again, so that it never rises
    plain = replace(table, recompute_layers=np.zeros_like(table.recompute_layers))
    blocks = parts.sums(parts.counts.sum(axis=1)) > 0
    moment = blocks * layer_moment(job, plain, layers)
    unsure = _spread(*offloaded(table, layers, parts)) + _spread(*_dropped(table, layers, parts))
    moment[0] = np.maximum(moment[0], embedding_moment(job, table) - kept[0] - unsure)
    logits, ends = logit_values(job, table), _last_rank(parts)
    head = head_moment(job, table) + logits * job.software.loss_kept
    moment = np.where(ends, np.maximum(moment, head), moment)
    narrow = np.min(np.stack([border_bytes(table, values) for values in borders(job)]), axis=0)
    passing = table.common.overlap_p2p and not job.software.torch_stages
    sent = np.where(table.pp > 1, 2.0 * narrow, 0.0) * passing
    saved = job.software.loss_saved
    scores = np.where(ends, logits * saved, 0.0) if saved else 0.0
    return moment + sent, scores


def _spread(least: Num, most: Num) -> Num:
    """What is not known of the first kind of stage, (C,); 0.0 where no plan has any."""
    spread = most - least
    return spread[0] if isinstance(spread, np.ndarray) else 0.0


def _last_rank(parts: TellingParts) -> Flags:
    """Which of the ranks hold the last stage, once each, (Q, C)."""
    return np.asarray(parts.on_rank[:, -1] > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing(Columns):
    """Bytes of Q ranks of C plans: `fixed` (Q, C) for the whole run beside `gradients` (Q, C).

    Gradients stay, too, where `bucketed` (C,); elsewhere each is freed before the next step, and
    the first backward of that may meet none.
    """

    fixed: Array
    gradients: Array
    bucketed: Flags

    @classmethod
    def of(cls, job: Job, table: PlanTable, parts: TellingParts) -> Standing:
        """Count the ranks of a table with equal numbers of ranks that stand for all."""
        stages = stage_weights(job.model, table, parts.counts)
        trained = trained_weights(job.model, table, parts.counts, stages)
        weights = stages.by(parts.sums)
        updated = weights if trained is stages else trained.by(parts.sums)
        fixed, gradients = _static(job, table, parts, weights, updated)
        eager = job.software.eager
        bucketed = in_buckets(job, table) if eager else ~makes_gradients(job, table)
        return cls(fixed=fixed, gradients=gradients, bucketed=bucketed)


def _static(
    job: Job, table: PlanTable, parts: TellingParts, weights: Weights, trained: Weights
) -> tuple[Array, Array]:
    """(all but gradients, gradients): bytes of each rank, (Q, C), for the whole run.

    With what ZeRO-3 holds gathered and the staging of a bucket; of eager PyTorch, whose moments
    hold those, without.
    """
    parameters, gradients, optimizer = static_bytes(job, table, weights, trained)
    fixed = parameters + optimizer
    if job.software.eager:
        return fixed, gradients
    bucket = np.minimum(mean_bucket(job, table), trained.parameters) * reduced_bytes(table)
    apart = not job.software.fused_gradient_accumulation
    stages = (table.dp * table.cp > 1) & (table.zero_stage < 3)
    return fixed + np.where(stages, apart * bucket, 0.0) + _gathered(job, table, parts), gradients


def _gathered(job: Job, table: PlanTable, parts: TellingParts) -> Array:
    """What ZeRO-3 holds gathered: a layer, embedding and head on their ranks, (Q, C)."""
    blocks = parts.sums(parts.counts.sum(axis=1)) > 0
    out = blocks * largest_layer_parameters(job.model, table)
    for row, outer in ((0, job.model.before), (-1, job.model.behind)):
        on_rank = parts.on_rank[:, row] > 0
        for part in outer:
            shared = part.split_parameters / table.tp + part.repeated_parameters
            out = out + np.where(on_rank, shared, 0.0)
    return np.where(table.zero_stage == 3, out * table.precision.gathered, 0.0)
