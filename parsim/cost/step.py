"""All seconds and bytes that a simulator needs of a group of plans with the same stages.

`StepCosts` is the border between cost and simulation: durations of the schedule's actions, hops
between stages, gradient buckets and the tail of the step; and what each stage keeps in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from parsim.cluster.placement import hop_crosses
from parsim.cost.collectives import Groups, collective_time, groups, p2p_time
from parsim.cost.crowding import speed_beside
from parsim.cost.job import Job
from parsim.cost.placed import crossing_share, spine_divisor
from parsim.cost.sharded import Sharded
from parsim.cost.sharding import DataParallel, reduced_bytes
from parsim.cost.stages import (
    LayerTable,
    backward_times,
    even_cut,
    forward_times,
    layer_counts,
    per_rank,
    stage_experts,
    stage_parameters,
    tied_parameters,
)
from parsim.cost.streams import pipelined
from parsim.plan import PlanTable

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCosts:
    """Seconds for B plans of S stages on p pipeline ranks.

    `forward`, `backward` (S, B) are whole actions; the `exposed_` and `recomputed` parts are
    inside them. `hop` (S, B) is the time of the message between stage s and s + 1 (last row 0).
    `buckets` and `bucket_time` (S, B) describe the reduction after a stage's last backward.
    `tied`, `norm` (B,), `optimizer` and `gather` (p, B) follow. `late` (B,) is what the last
    backwards lose to the reduction beside them. `straggler` (B,) is the share by which the whole
    step grows. `parameters` (S, B) counts local parameters of one rank, `experts` (S, B) those of
    them that are experts' (None: none).
    """

    forward: Array
    backward: Array
    exposed_forward: Array
    exposed_backward: Array
    recomputed: Array
    hop: Array
    buckets: Array
    bucket_time: Array
    tied: Array
    norm: Array
    optimizer: Array
    gather: Array
    late: Array
    straggler: Array
    parameters: Array
    blocking_p2p: bool
    overlap_reduce: bool
    experts: Array | None = None

    @property
    def num_plans(self) -> int:
        """B."""
        return int(self.forward.shape[1])

    def rows(self, rows: NDArray[np.int64]) -> StepCosts:
        """The same for some of the plans."""
        columns = {
            field.name: getattr(self, field.name)[..., rows]
            for field in fields(self)
            if isinstance(getattr(self, field.name), np.ndarray)
        }
        return replace(self, **columns)


def stage_cut(job: Job, table: PlanTable) -> tuple[int, ...]:
    """Layers per stage of the group's plans."""
    if table.common.stage_layers is not None:
        return table.common.stage_layers
    return even_cut(job.model.num_layers, int(table.pp[0] * table.v[0]))


def step_costs(job: Job, table: PlanTable, layers: LayerTable | None = None) -> StepCosts:
    """Price plans that share pp and v.

    Args:
        job: model, cluster, software.
        table: B plans with equal pp, v and common fields.
        layers: their layer costs, where they are already known.
    """
    layers = layers or LayerTable.of(job, table)
    counts = layer_counts(job.model, stage_cut(job, table))
    data = DataParallel.of(job, table)
    parameters = stage_parameters(job.model, table, counts)
    experts = stage_experts(job.model, table, counts) if job.model.experts else None
    forward = forward_times(job, layers, counts)
    backward = backward_times(job, layers, counts)
    speed = speed_beside(job.system, data.shard, layers.kinds)
    sharded = Sharded(
        job=job,
        layers=layers,
        counts=counts,
        data=data,
        parameters=parameters,
        experts=experts,
        speed=speed,
    )
    ahead, behind = sharded.passes(forward, backward)
    buckets, bucket_time = data.bucketed_reduction(parameters, experts)
    pp = int(table.pp[0])
    by_rank = per_rank(parameters, pp)
    routed = None if experts is None else per_rank(experts, pp)
    # compute that loses more than half of a collective's time gains nothing from it beside
    beside = table.common.overlap_grad_reduce and (job.system.interference or 0.0) < 0.5
    return StepCosts(
        forward=ahead.time,
        backward=behind.time,
        exposed_forward=ahead.exposed,
        exposed_backward=behind.exposed,
        recomputed=behind.recomputed,
        hop=_hop_times(job, table, layers, len(counts)),
        buckets=buckets,
        bucket_time=bucket_time,
        tied=_tied(job, table),
        norm=data.gradient_norm(),
        optimizer=data.optimizer(by_rank, routed),
        gather=data.final_gather(by_rank, per_rank(ahead.time, pp), speed, routed),
        straggler=_straggler(job, table),
        parameters=parameters,
        blocking_p2p=not table.common.overlap_p2p,
        overlap_reduce=beside,
        late=_late(behind.time, buckets, bucket_time, speed).max(axis=0) * beside,
        experts=experts,
    )


def late_by_stage(job: Job, table: PlanTable, layers: LayerTable, costs: StepCosts) -> Array:
    """What each stage's last backward loses to the reduction beside it, (S, B)."""
    speed = speed_beside(job.system, DataParallel.of(job, table).shard, layers.kinds)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hops:
    """Which hops leave a node: `crosses` (p - 1, B) for rank r to r + 1, `wrap` (B,) last to 0.

    `spine` (B,) is by how much the up-links of leaf groups narrow a hop: all replicas send at once.
    """

    crosses: NDArray[np.bool_]
    wrap: NDArray[np.bool_]
    sharing: Array
    spine: Array

    @classmethod
    def of(cls, job: Job, table: PlanTable) -> _Hops:
        pp, per_node = int(table.pp[0]), job.system.devices_per_node
        stride = table.stride("pp")
        rows = [
            hop_crosses(stride=int(q), pp=pp, devices_per_node=per_node, world_size=int(w))
            for q, w in zip(stride, table.world_size, strict=True)
        ]
        crosses = np.array(rows, dtype=bool).reshape(len(table), pp - 1).T
        return cls(
            crosses=crosses,
            wrap=np.asarray(crosses.any(axis=0)),
            sharing=np.minimum(stride, per_node).astype(np.float64),
            spine=_spine(job, table),
        )


def _spine(job: Job, table: PlanTable) -> Array:
    """The divisor of messages where the plan's nodes are in several leaf groups, (B,)."""
    system, network = job.system, job.system.network
    if network is None:
        return np.ones(len(table))
    several = table.world_size > network.nodes_per_leaf * system.devices_per_node
    shared = spine_divisor(system, crossing_share(system, table.stride("pp")))
    return np.asarray(np.where(several, shared, 1.0))


def _hop_times(job: Job, table: PlanTable, layers: LayerTable, stages: int) -> Array:
    """Message time after each stage; scattered, each rank sends 1/tp and the node gathers it."""
    pp = int(table.pp[0])
    hop = np.zeros((stages, len(table)))
    if pp == 1:
        return hop
    where = _Hops.of(job, table)
    whole, regather = layers.boundary, np.zeros(len(table))
    size = whole
    if table.common.scatter_p2p:
        size = whole / np.where(table.sequence_parallel, 1, table.tp)
        tp = groups(job.system, size=table.tp, stride=table.stride("tp"), world=table.world_size)
        again = collective_time(job.system, "all_gather", whole, tp)
        regather = np.where(table.sequence_parallel, 0.0, again)
    for stage in range(stages - 1):
        rank = stage % pp
        over = where.crosses[rank] if rank < pp - 1 else where.wrap
        message = p2p_time(job.system, size, crosses=over, sharing=where.sharing,
                           spine=where.spine)  # fmt: skip
        hop[stage] = message + np.where(over, regather, 0.0)
    return hop


def _tied(job: Job, table: PlanTable) -> Array:
    """All-reduce of the shared table's gradient between first and last stage, (B,)."""
    if not job.model.tied_embeddings or int(table.pp[0]) == 1:
        return np.zeros(len(table))
    hops = _Hops.of(job, table)
    pair = Groups(
        size=np.full(len(table), 2.0),
        per_node=np.where(hops.wrap, 1.0, 2.0),
        nodes=np.where(hops.wrap, 2.0, 1.0),
        sharing=hops.sharing,
        leaves=np.zeros(len(table), dtype=bool),
    )
    size = tied_parameters(job.model, table) * reduced_bytes(table)
    return collective_time(job.system, "all_reduce", size, pair)


def _straggler(job: Job, table: PlanTable) -> Array:
    """Growth of the step with the number of devices beyond 8: sigma log2(n / 8), (B,).

    Source: system file, fitted to public multi-node runs; 1.3 to 1.9 % per doubling on A100
    clusters of 2021, 0.5 % on H100.
    """
    doublings = np.log2(np.maximum(table.world_size / 8.0, 1.0))
    return np.asarray(job.system.straggler * doublings)
