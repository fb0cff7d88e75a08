"""Ways to lay a plan on a mixed cluster: order of nodes, of axes, layers by speed, batch by speed.

order    which group of nodes ranks fill first
axes     pp outermost (a stage a kind) or innermost (a replica a kind)
cut      layers in equal parts, or so many that the slowest pipeline rank is as fast as can be
batch    micro-batches in equal parts, or so many that the slowest replica is
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from parsim.arrays import Array, Index
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.stages import even_cut, layer_counts, plan_cut
from parsim.model.model import Model
from parsim.plan import RANK_ORDER, Plan
from parsim.plan.names import WHOLE
from parsim.planner.mixed.earliest_ends import earliest_ends
from parsim.schedule.placement import stage_ranks
from parsim.sim.step.pricing import groups_in
from parsim.sim.step.replica_classes import DevicesOfRanks

ALIKE = 1.1
"""Largest ratio of memories for which no cut by memory is tried."""

INSIDE = ("dp_replicate", "dp_shard", "pp", "cp", "tp")
"""Axes with the pipeline inside of the replicas, so that a replica fills nodes of one kind."""

INSIDE_BESIDE_CP = ("dp_replicate", "dp_shard", "cp", "pp", "tp")
"""`INSIDE` where context-parallel ranks, which reduce gradients too, stand beside the replicas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speeds:
    """Least seconds of a plan's parts on each group's nodes; arrays (G, ...).

    `layers` (G, K, 2) forward and backward of a layer of each kind, `ends` (G, 2, 2) of embedding
    and head: kernels and exposed tensor-parallel collectives, without what host, sharding and
    messages add.
    """

    layers: Array
    ends: Array

    @classmethod
    def of(cls, tables: Sequence[LayerTable], row: int) -> Speeds:
        """Speeds of one plan; each table prices it on one group's nodes."""
        layers = [
            [
                (kind.forward.seconds[row], kind.backward.plus(again).seconds[row])
                for kind, again in zip(table.kinds, table.recomputed, strict=True)
            ]
            for table in tables
        ]
        ends = [
            [
                (end.forward.seconds[row], end.backward.seconds[row])
                for end in (table.before, table.behind)
            ]
            for table in tables
        ]
        return cls(layers=np.array(layers), ends=np.array(ends))

    def stages(self, counts: Array) -> Array:
        """Forward and backward of each stage on each group's nodes, (G, S, 2)."""
        seconds: Array = np.einsum("sk,gkd->gsd", counts, self.layers)
        seconds[:, 0] += self.ends[:, 0]
        seconds[:, -1] += self.ends[:, 1]
        return seconds

    def by_rank(self, counts: Array, devices: DevicesOfRanks, rank_of: Sequence[int]) -> Array:
        """Forward and backward of each stage on the slowest nodes of each replica, (S, dp, 2)."""
        stages, bits = self.stages(counts), devices.groups[list(rank_of)]
        slowest = np.zeros((*bits.shape, 2))
        for group in groups_in(int(devices.world)):
            lies_on = (bits >> group & 1)[:, :, None]
            slowest = np.maximum(slowest, lies_on * stages[group][:, None, :])
        return slowest


Placed = tuple[Plan, DevicesOfRanks]
"""A plan and where its ranks lie."""


def placements(
    plan: Plan,
    laid: Mapping[tuple[str, ...], Index],
    model: Model,
    speeds: Speeds,
    usable: Array,
) -> Iterator[Placed]:
    """Every way to lay a plan with equal parts, each once.

    `laid` is the group of each rank's device, by orders of the groups' nodes; `usable` are the
    bytes of a device of each group.
    """
    for order, groups in laid.items():
        for axes in _axes(plan):
            placed = replace(plan, node_order=order, rank_order=axes)
            yield from _divided(placed, model, speeds, usable, DevicesOfRanks.on(groups, placed))


def _axes(plan: Plan) -> list[tuple[str, ...]]:
    """The plan's order of axes; of the default one also that with the pipeline inside."""
    if plan.rank_order != RANK_ORDER or plan.pp == 1 or plan.dp == 1:
        return [plan.rank_order]
    return [RANK_ORDER, INSIDE if plan.cp == 1 else INSIDE_BESIDE_CP]


def _divided(
    plan: Plan, model: Model, speeds: Speeds, usable: Array, devices: DevicesOfRanks
) -> Iterator[Placed]:
    even = even_cut(model.num_layers, plan.num_stages)
    fast = balanced_cut(plan, model, speeds, devices)
    alike = usable.max() <= ALIKE * usable.min()
    roomy = () if alike else (roomy_cut(plan, model, usable, devices),)
    for cut in dict.fromkeys((even, fast, *roomy)):
        cut_plan = replace(plan, stage_layers=None if cut == even else cut)
        yield cut_plan, devices
        counts = balanced_batches(cut_plan, model, speeds, devices, cut)
        if len(set(counts)) > 1:
            uneven = replace(cut_plan, replica_microbatches=counts, num_microbatches=max(counts))
            yield uneven, replace(devices, microbatches=np.array(counts))


def balanced_cut(
    plan: Plan, model: Model, speeds: Speeds, devices: DevicesOfRanks
) -> tuple[int, ...]:
    """Layers per stage whose slowest pipeline rank is as fast as can be.

    Best for equal layers; for layers of several kinds their mean counts.
    """
    rank_of = stage_ranks(plan)
    share = np.array([model.blocks.count(kind) for kind in model.kinds], dtype=np.float64)
    share /= share.sum()
    none = np.zeros((plan.num_stages, len(share)))
    empty = speeds.by_rank(none, devices, rank_of).sum(axis=2).max(axis=1)
    each = speeds.by_rank(none + share, devices, rank_of).sum(axis=2).max(axis=1) - empty
    return _greedy_cut(plan, model, empty, each)


def roomy_cut(plan: Plan, model: Model, usable: Array, devices: DevicesOfRanks) -> tuple[int, ...]:
    """Layers per stage in proportion to the memory of its ranks' smallest device."""
    lies_on = [(devices.groups >> group & 1).any(axis=1) for group in range(len(usable))]
    least = np.where(lies_on, usable[:, None], np.inf).min(axis=0)
    each = 1.0 / least[stage_ranks(plan)]
    return _greedy_cut(plan, model, np.zeros_like(each), each)


def _greedy_cut(plan: Plan, model: Model, empty: Array, each: Array) -> tuple[int, ...]:
    """One layer after another to the rank that is then the least full.

    Of a rank's stages to the one with the fewest. `empty` (S,) is what a stage has without layers,
    `each` what a layer adds.
    """
    rank_of = stage_ranks(plan)
    load, cut = np.zeros(plan.pp), [0] * plan.num_stages
    np.add.at(load, rank_of, empty)
    stages = [[s for s, rank in enumerate(rank_of) if rank == r] for r in range(plan.pp)]
    queue = [(load[r] + each[stages[r][0]], r) for r in range(plan.pp)]
    heapq.heapify(queue)
    for _ in range(model.num_layers):
        late, rank = heapq.heappop(queue)
        stage = min(stages[rank], key=lambda s: (cut[s], s))
        cut[stage] += 1
        heapq.heappush(queue, (late + each[stage], rank))
    return tuple(cut) if min(cut) > 0 else even_cut(model.num_layers, plan.num_stages)


def balanced_batches(
    plan: Plan, model: Model, speeds: Speeds, devices: DevicesOfRanks, cut: tuple[int, ...]
) -> tuple[int, ...]:
    """Micro-batches per replica whose slowest replica is as fast as can be.

    A replica takes m times its slowest pipeline rank, and the others' once. Interleaved schedules
    want multiples of pp; replicas that exchange shards in every pass want equally many.
    """
    unit = plan.pp if plan.schedule == "interleaved_1f1b" else 1
    total = plan.num_microbatches * plan.dp
    same = plan.dp_shard if plan.zero_stage >= 2 else 1
    if plan.dp == same or total % (unit * same) or total < unit * plan.dp:
        return plan.microbatches
    rank_of = stage_ranks(plan)
    stages = speeds.by_rank(layer_counts(model, cut), devices, rank_of).sum(axis=2)
    ranks = np.zeros((plan.pp, plan.dp))
    np.add.at(ranks, rank_of, stages)
    pace = ranks.max(axis=0).reshape(-1, same).max(axis=1)
    rest = (ranks.sum(axis=0) - ranks.max(axis=0)).reshape(-1, same).max(axis=1)
    counts = np.full(len(pace), unit)
    queue = [(float(rest[i] + 2 * unit * pace[i]), i) for i in range(len(pace))]
    heapq.heapify(queue)
    for _ in range(total // (unit * same) - len(pace)):
        late, group = heapq.heappop(queue)
        counts[group] += unit
        heapq.heappush(queue, (late + unit * float(pace[group]), group))
    return tuple(int(count) for count in np.repeat(counts, same))


def lower_bound(plan: Plan, model: Model, speeds: Speeds, devices: DevicesOfRanks) -> float:
    """Seconds that no step of a placed plan can be shorter than: `earliest_ends` of its pipeline.

    With less seconds than `Speeds` no action is priced, and what follows the pipeline only adds.
    """
    rank_of = stage_ranks(plan)
    cut = plan_cut(plan, model.num_layers)
    stages = speeds.by_rank(layer_counts(model, cut), devices, rank_of)
    whole = plan.schedule in WHOLE and plan.actions is None
    forward, backward = stages[..., 0], stages[..., 1]
    ends = earliest_ends(forward, backward, rank_of, devices.microbatches, whole=whole)
    return float(ends.max())
