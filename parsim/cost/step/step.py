"""All seconds and bytes that a simulator needs of a group of plans with the same stages.

Durations of the schedule's actions, hops between stages, gradient buckets and the tail of the step;
and what each stage keeps in memory.
"""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array
from parsim.cost.data.data_parallel import DataParallel
from parsim.cost.data.reduction import bucketed_reduction
from parsim.cost.data.update import update_prices
from parsim.cost.job import Job
from parsim.cost.layer.interference import measured_loss, speed_beside
from parsim.cost.layer.layers import recomputes_layers
from parsim.cost.layer.passes import Pass
from parsim.cost.step.costs import StepCosts
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.messages import hop_times
from parsim.cost.step.offload import moved_bytes, offloads, with_copies
from parsim.cost.step.pair_sums import head_sums, tied_time
from parsim.cost.step.sharded_stages import Sharded
from parsim.cost.step.stage_passes import ChunkTimes, backward_times, forward_times, whole_layers
from parsim.cost.step.stages import (
    even_cut,
    first_layers,
    layer_counts,
    per_rank,
    saved_originals,
    stage_borders,
    stage_weights,
    trained_weights,
)
from parsim.cost.stragglers import straggler_growth
from parsim.cost.streams import pipelined
from parsim.plan import PlanTable


def stage_cut(job: Job, table: PlanTable) -> tuple[int, ...]:
    """Layers per stage of the group's plans."""
    stages = int(table.pp[0] * table.v[0])
    return table.common.stage_layers or even_cut(job.model.num_layers, stages)


def repeated_layers(job: Job, table: PlanTable) -> Array | None:
    """Layers of each kind that each stage recomputes as a whole, (S, K, B), where any plan does."""
    if not recomputes_layers(table):
        return None
    return first_layers(job.model, stage_cut(job, table), table.recompute_layers)


def deeper_pass(job: Job, table: PlanTable, layers: LayerTable) -> Pass | None:
    """What stages repeat more because they recompute layers as a whole, where any plan does."""
    again = repeated_layers(job, table)
    return None if again is None else whole_layers(layers, again)


def step_costs(job: Job, table: PlanTable, layers: LayerTable | None = None) -> StepCosts:
    """Price B plans with equal pp, v and common fields; `layers` where they are already priced."""
    layers = layers or LayerTable.of(job, table)
    sharded = _sharded(job, table, layers)
    ahead, behind, copied = _passes(job, table, sharded)
    buckets, bucket_time = _reduction(job, table, sharded)
    beside = reduces_beside(job, table)
    return StepCosts(
        forward=ahead.time,
        backward=behind.time,
        exposed_forward=ahead.exposed,
        exposed_backward=behind.exposed,
        recomputed=behind.recomputed,
        hop=hop_times(job, table, stage_borders(job.model, stage_cut(job, table))),
        buckets=buckets,
        bucket_time=bucket_time,
        tied=tied_time(job, table),
        straggler=straggler(job, table),
        parameters=sharded.weights.parameters,
        trained=sharded.trained.parameters,
        blocking_p2p=not table.common.overlap_p2p,
        overlap_reduce=beside,
        late=_late(behind.time, buckets, bucket_time, sharded.speed).max(axis=0) * beside,
        experts=sharded.weights.experts,
        trained_experts=sharded.trained.experts,
        originals=saved_originals(job, table, sharded.counts),
        **_updates(sharded, ahead.time, behind.time, pp=int(table.pp[0])),
        **copied,
    )


def _sharded(job: Job, table: PlanTable, layers: LayerTable) -> Sharded:
    """What stages hold, and what their data-parallel groups exchange of it."""
    counts, data = layer_counts(job.model, stage_cut(job, table)), DataParallel.of(job, table)
    weights = stage_weights(job.model, table, counts)
    return Sharded(
        job=job,
        layers=layers,
        counts=counts,
        deeper=deeper_pass(job, table, layers),
        data=data,
        weights=weights,
        trained=trained_weights(job.model, table, counts, weights),
        speed=speed_beside(job.system, data.busbw, layers.kinds),
    )


def _passes(
    job: Job, table: PlanTable, sharded: Sharded
) -> tuple[ChunkTimes, ChunkTimes, dict[str, Array]]:
    """Forwards and backwards of the stages, and what shows in them of copies to the host."""
    layers, counts = sharded.layers, sharded.counts
    forward = forward_times(job, layers, counts)
    backward = backward_times(job, layers, counts, sharded.deeper)
    forward, backward = sharded.passes(forward, backward)
    if not offloads(table):
        return forward, backward, {}
    moved = moved_bytes(job, table, layers, stage_cut(job, table))
    ahead, behind = with_copies(job, forward, backward, moved)
    shown = {
        "copied_forward": ahead.time - forward.time,
        "copied_backward": behind.time - backward.time,
    }
    return ahead, behind, shown


def _reduction(job: Job, table: PlanTable, sharded: Sharded) -> tuple[Array, Array]:
    """How many buckets of gradients each stage has, and how long one takes, (S, B)."""
    buckets, seconds = bucketed_reduction(sharded.data, *sharded.trained)
    return buckets, seconds + head_sums(job, table, sharded.counts) / buckets


def _updates(sharded: Sharded, forward: Array, backward: Array, *, pp: int) -> dict[str, Array]:
    """Seconds of the optimizer and of what stands around it, by field."""
    return update_prices(
        sharded.data,
        *sharded.trained.by(lambda stages: per_rank(stages, pp)),
        first=per_rank(forward, pp),
        speed=sharded.speed,
        idle=filling(forward, pp),
        backward=per_rank(backward, pp),
    )


def reduces_beside(job: Job, table: PlanTable) -> bool:
    """Whether gradients are reduced beside the last backwards.

    Compute that loses more than half of a collective's time gains nothing from it beside.
    """
    return table.common.overlap_grad_reduce and (measured_loss(job.system) or 0.0) < 0.5


def filling(forward: Array, pp: int) -> Array:
    """Seconds in which each rank waits for its first micro-batch, (p, B): what ranks ahead take."""
    first = forward[:pp]
    return np.asarray(np.cumsum(first, axis=0) - first)


def late_by_stage(job: Job, table: PlanTable, layers: LayerTable, costs: StepCosts) -> Array:
    """What each stage's last backward loses to the reduction beside it, (S, B)."""
    speed = speed_beside(job.system, DataParallel.of(job, table).busbw, layers.kinds)
    lost = _late(costs.backward, costs.buckets, costs.bucket_time, speed)
    return lost * costs.overlap_reduce


def _late(length: Array, buckets: Array, bucket_time: Array, speed: Array) -> Array:
    """What a last backward and its buckets take longer because compute is slowed, (S, B).

    The buckets' pipeline at `speed` less that at full speed; 0 where the wire decides anyway. The
    step loses that of the stage that loses most.

    Leaves out: that stages which end their last backwards one after another lose one after another;
    all of them together made rows of interleaved schedules 0.6 points slower, 2.6 instead of 2.3 %.
    """
    wire = buckets * bucket_time
    return pipelined(length, wire, buckets, speed) - pipelined(length, wire, buckets, 1.0)


def straggler(job: Job, table: PlanTable) -> Array:
    """Growth of the step of each plan, (B,)."""
    return straggler_growth(
        job,
        world=table.world_size,
        teams=table.world_size // (table.tp * table.cp),
        dp=table.dp,
        compute=table.precision.compute,
    )
