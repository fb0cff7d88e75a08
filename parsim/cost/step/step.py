"""All seconds and bytes that a simulator needs of a group of plans with the same stages.

`StepCosts` is the border between cost and simulation: durations of the schedule's actions, hops
between stages, gradient buckets and the tail of the step; and what each stage keeps in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from parsim.arrays import Array, Columns, Flags, Ints
from parsim.cluster.placement import hop_crosses
from parsim.cost.collective.collectives import collective_time, p2p_time
from parsim.cost.collective.group_bandwidth import Groups, crossing_share, groups, spine_divisor
from parsim.cost.job import Job
from parsim.cost.layer.interference import speed_beside
from parsim.cost.layer.kept.operator_tensors import border_bytes
from parsim.cost.order_statistics import expected_maximum, later_than_of_node
from parsim.cost.step.buckets import reduced_bytes
from parsim.cost.step.data_parallel import DataParallel
from parsim.cost.step.offload import moved_bytes, offloads, with_copies
from parsim.cost.step.sharded_stages import Sharded
from parsim.cost.step.stages import (
    LayerTable,
    backward_times,
    even_cut,
    forward_times,
    layer_counts,
    per_rank,
    stage_borders,
    stage_experts,
    stage_parameters,
    tied_parameters,
)
from parsim.cost.streams import pipelined
from parsim.plan import PlanTable


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCosts(Columns):
    """Seconds for B plans of S stages on p pipeline ranks.

    `forward`, `backward` (S, B) are whole actions; the `exposed_` and `recomputed` parts are
    inside them. `hop` (S, B) is the time of the message between stage s and s + 1 (last row 0).
    `buckets` and `bucket_time` (S, B) describe the reduction after a stage's last backward.
    `tied`, `norm` (B,), `optimizer` and `gather` (p, B) follow. `late` (B,) is what the last
    backwards lose to the reduction beside them. `straggler` (B,) is the share by which the whole
    step grows. `parameters` (S, B) counts local parameters of one rank, `experts` (S, B) those of
    them that are experts' (None: none). `copied_forward` and `copied_backward` (S, B) are the parts
    of the exposed seconds in which copies to the host and back show (None: nothing is moved there).
    `copies` (p, B) is the exchange of a rank's gradients with the rank that holds the other copy of
    its stages (None: there is one copy).
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
    copied_forward: Array | None = None
    copied_backward: Array | None = None
    copies: Array | None = None

    @property
    def num_plans(self) -> int:
        """B."""
        return int(self.forward.shape[1])


def stage_cut(job: Job, table: PlanTable) -> tuple[int, ...]:
    """Layers per stage of the group's plans."""
    stages = int(table.pp[0] * table.v[0])
    return table.common.stage_layers or even_cut(job.model.num_layers, stages)


def step_costs(job: Job, table: PlanTable, layers: LayerTable | None = None) -> StepCosts:
    """Price B plans with equal pp, v and common fields; `layers` where they are already priced."""
    layers = layers or LayerTable.of(job, table)
    counts = layer_counts(job.model, stage_cut(job, table))
    data = DataParallel.of(job, table)
    parameters = stage_parameters(job.model, table, counts)
    experts = stage_experts(job.model, table, counts) if job.model.experts else None
    forward = forward_times(job, layers, counts)
    backward = backward_times(job, layers, counts)
    speed = speed_beside(job.system, data.busbw, layers.kinds)
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
    copied: dict[str, Array] = {}
    if offloads(table):
        alone = ahead, behind
        moved = moved_bytes(job, table, layers, stage_cut(job, table))
        ahead, behind = with_copies(job, ahead, behind, moved)
        copied["copied_forward"] = ahead.time - alone[0].time
        copied["copied_backward"] = behind.time - alone[1].time
    buckets, bucket_time = data.bucketed_reduction(parameters, experts)
    pp = int(table.pp[0])
    by_rank = per_rank(parameters, pp)
    routed = None if experts is None else per_rank(experts, pp)
    beside = reduces_beside(job, table)
    return StepCosts(
        forward=ahead.time,
        backward=behind.time,
        exposed_forward=ahead.exposed,
        exposed_backward=behind.exposed,
        recomputed=behind.recomputed,
        hop=_hop_times(job, table, stage_borders(job.model, stage_cut(job, table))),
        buckets=buckets,
        bucket_time=bucket_time,
        tied=_tied(job, table),
        norm=data.gradient_norm(by_rank, routed),
        optimizer=data.optimizer(by_rank, routed),
        gather=data.final_gather(
            by_rank, per_rank(ahead.time, pp), speed, routed, filling(ahead.time, pp)
        ),
        straggler=straggler(job, table),
        parameters=parameters,
        blocking_p2p=not table.common.overlap_p2p,
        overlap_reduce=beside,
        late=_late(behind.time, buckets, bucket_time, speed).max(axis=0) * beside,
        experts=experts,
        **copied,
    )


def reduces_beside(job: Job, table: PlanTable) -> bool:
    """Whether gradients are reduced beside the last backwards.

    Compute that loses more than half of a collective's time gains nothing from it beside.
    """
    return table.common.overlap_grad_reduce and (job.system.interference or 0.0) < 0.5


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


def _crossing(job: Job, table: PlanTable) -> Flags:
    """Which hops leave a node, (p, B): rank r to r + 1, and from the last to rank 0."""
    pp, per_node = int(table.pp[0]), job.system.devices_per_node
    cases = np.stack([table.stride("pp"), table.world_size], axis=1)
    distinct, back = np.unique(cases, axis=0, return_inverse=True)
    rows = [
        hop_crosses(stride=q, pp=pp, devices_per_node=per_node, world_size=w)
        for q, w in distinct.tolist()
    ]
    crosses = np.array(rows, dtype=bool).reshape(len(distinct), pp - 1).T[:, back.reshape(-1)]
    return np.concatenate([crosses, crosses.any(axis=0, keepdims=True)])


def _spine(job: Job, table: PlanTable) -> Array:
    """By how much up-links of leaf groups narrow a hop, (B,): all replicas send at once."""
    system, network = job.system, job.system.network
    if network is None:
        return np.ones(len(table))
    several = table.world_size > network.nodes_per_leaf * system.devices_per_node
    shared = spine_divisor(system, crossing_share(system, table.stride("pp")))
    return np.asarray(np.where(several, shared, 1.0))


def _hop_times(job: Job, table: PlanTable, borders: Sequence[int]) -> Array:
    """Message time after each stage; scattered, each rank sends 1/tp and the node gathers it."""
    pp = int(table.pp[0])
    hop = np.zeros((len(borders), len(table)))
    if pp == 1:
        return hop
    crosses = _crossing(job, table)
    distinct = dict.fromkeys(borders[:-1])  # most stages send as much as the others
    seconds = {values: message_seconds(job, table, values) for values in distinct}
    for stage, values in enumerate(borders[:-1]):
        inside, across = seconds[values]
        hop[stage] = np.where(crosses[stage % pp], across, inside)
    return hop


def message_seconds(job: Job, table: PlanTable, values: int) -> tuple[Array, Array]:
    """Seconds of a message of so many values a sample: inside a node, and out of it, (B,) each."""
    sharing, spine = _sharing(job, table), _spine(job, table)
    inside, across = (
        p2p_time(job.system, hop_bytes(table, values), crosses=over, sharing=sharing, spine=spine)
        for over in (False, True)
    )
    return inside, across + _regather(job, table, values)


def _sharing(job: Job, table: PlanTable) -> Array:
    """How many ranks of a node send to the next stage at the same time, (B,)."""
    return np.minimum(table.stride("pp"), job.system.devices_per_node).astype(np.float64)


def hop_bytes(table: PlanTable, values: int) -> Array:
    """Bytes that a rank sends to the next stage of so many values a sample, (B,)."""
    whole = border_bytes(table, values)
    if not table.common.scatter_p2p:
        return whole
    return whole / np.where(table.sequence_parallel, 1, table.tp)


def _regather(job: Job, table: PlanTable, values: int) -> Array:
    """Seconds in which a node's ranks put scattered messages together again, (B,)."""
    if not table.common.scatter_p2p:
        return np.zeros(len(table))
    tp = groups(job.system, size=table.tp, stride=table.stride("tp"), world=table.world_size)
    again = collective_time(job.system, "all_gather", border_bytes(table, values), tp)
    return np.where(table.sequence_parallel, 0.0, again)


def _tied(job: Job, table: PlanTable) -> Array:
    """All-reduce of the shared table's gradient between first and last stage, (B,)."""
    if not job.model.tied_embeddings or int(table.pp[0]) == 1:
        return np.zeros(len(table))
    return tied_seconds(job, table, _crossing(job, table)[-1])


def tied_seconds(job: Job, table: PlanTable, wrap: Flags) -> Array:
    """All-reduce of a shared table between two stages, with `wrap` on two nodes, (B,)."""
    return _pair_seconds(job, table, wrap, tied_parameters(job.model, table))


def copies_seconds(job: Job, table: PlanTable, by_rank: Array) -> Array:
    """All-reduces between ranks r and pp - 1 - r, which hold copies of the same stages, (p, B).

    Of what their own replicas have reduced: under ZeRO each rank has its share.

    Source: Chimera (arXiv 2107.06925), section 3.2. Leaves out: that it may begin before the last
    action of the rank.
    """
    pp, crosses = len(by_rank), _crossing(job, table)
    rows = []
    for rank in range(pp):
        low, high = sorted((rank, pp - 1 - rank))
        between = np.asarray(crosses[low:high].any(axis=0))
        rows.append(_pair_seconds(job, table, between, by_rank[rank] / table.shards))
    return np.stack(rows)


def _pair_seconds(job: Job, table: PlanTable, wrap: Flags, parameters: Array) -> Array:
    """All-reduce of gradients between two pipeline ranks, with `wrap` on two nodes, (B,)."""
    pair = Groups(
        size=np.full(len(table), 2.0),
        per_node=np.where(wrap, 1.0, 2.0),
        nodes=np.where(wrap, 2.0, 1.0),
        sharing=_sharing(job, table),
        leaves=np.zeros(len(table), dtype=bool),
    )
    size = parameters * reduced_bytes(table)
    return collective_time(job.system, "all_reduce", size, pair)


def straggler(job: Job, table: PlanTable) -> Array:
    """Growth of the step of each plan, (B,)."""
    return straggler_growth(
        job, world=table.world_size, dp=table.dp, compute=table.precision.compute
    )


def straggler_growth(job: Job, *, world: Ints, dp: Ints, compute: str) -> Array:
    """Growth of the step with devices beyond 8, and with replicas, (B,).

        sigma (E[max of n] - E[max of 8]) + spread E[max of dp]      of standard normals

    n ranks wait for the slowest; the constants of kernels hold what 8 wait. sigma is the system's,
    `spread` the stack's between data-parallel replicas.

    Source: order statistics; sigma fitted to public multi-node runs (reports/fit.md). Equal GPUs
    of one cluster differ by 1.5 to 4 % (arXiv:2208.11035). A logarithm, as delays with an
    exponential tail would have it, grows too slowly to 128 and too fast beyond 512 devices.
    """
    spread = job.software.spread_of_replicas(compute)
    waited = spread * expected_maximum(dp) if spread else 0.0
    return np.asarray(job.system.straggler_spread * later_than_of_node(world) + waited)
