"""Seconds at the end of a step, on the few ranks that bounds look at: replicas and the update.

Nothing of it depends on the micro-batch, on recomputation or on the order of actions, so that it is
computed once for all plans with equal degrees, ZeRO stage and placement of stages.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from parsim.arrays import Array, Columns, Num
from parsim.cost.collective.mesh_messages import best_share
from parsim.cost.data.data_parallel import DataParallel
from parsim.cost.data.reduction import bucketed_reduction, updated_gathers
from parsim.cost.data.static_bytes import Weights
from parsim.cost.data.update import norm_time, update_time
from parsim.cost.job import Job
from parsim.cost.layer.interference import memory_share
from parsim.cost.step.pair_sums import head_sums, pair_seconds, tied_seconds
from parsim.cost.step.stages import stage_weights, trained_weights
from parsim.cost.step.step import reduces_beside, straggler
from parsim.plan import PlanTable
from parsim.planner.bounds.hops import Hops
from parsim.planner.bounds.parts import TellingParts, over
from parsim.planner.bounds.sharded import sharded_passes


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail(Columns):
    """Seconds behind the pipeline and inside its passes, of Q ranks of C plans.

    `reduced` (Q, C) are all reductions of a rank's gradients, `bucket` (Q, C) one of each of its
    stages, `first_bucket` and `first_buckets` (C,) one of stage 0 and their number; `tied`, what
    the first and the last rank add up of parameters that both hold, and `norm` (C,); `update` and
    `gathered` (Q, C) the optimizer and ZeRO-1's gather. `forward` and `backward` (Q, C) are
    ZeRO-2's and 3's collectives of a rank's passes of one micro-batch, `ahead_forward` and
    `ahead_backward` of those of the stages before; `beside_forward` and `beside_backward` (Q, C)
    are those of a rank's that can run beside its compute at the most, and `memory_left` (C,) the
    share of the memory's bandwidth that they leave. `grows` (C,) is the share by which all of it
    grows. `beside` says whether gradients are reduced beside the last backwards. What no plan of
    the table has is 0.0.
    """

    reduced: Array
    bucket: Array
    first_bucket: Array
    first_buckets: Array
    tied: Array
    norm: Array
    update: Array
    gathered: Array
    forward: Num
    backward: Num
    ahead_forward: Num
    ahead_backward: Num
    beside_forward: Num
    beside_backward: Num
    memory_left: Array
    grows: Array
    beside: bool

    @classmethod
    def of(cls, job: Job, table: PlanTable, parts: TellingParts) -> Tail:
        """Price the ranks of a table with equal numbers of ranks that stand for all."""
        data = DataParallel.of(job, table)
        weights = stage_weights(job.model, table, parts.counts)
        trained = trained_weights(job.model, table, parts.counts, weights)
        by_rank, routed = trained.by(parts.sums)
        buckets, each = bucketed_reduction(data, *trained)
        each = each + head_sums(job, table, parts.counts) / buckets
        return cls(
            reduced=parts.sums(buckets * each),
            bucket=parts.sums(each),
            first_bucket=each[0],
            first_buckets=buckets[0],
            tied=_summed(job, table, parts, by_rank[0]),
            norm=norm_time(data, by_rank, routed),
            update=update_time(data, by_rank, routed),
            gathered=updated_gathers(data, by_rank, routed)[1],
            memory_left=memory_share(job.system, data.busbw),
            **_wires(data, parts, weights, trained),
            grows=straggler(job, table),
            beside=reduces_beside(job, table),
        )


def _wires(
    data: DataParallel, parts: TellingParts, weights: Weights, trained: Weights
) -> dict[str, Num]:
    """Seconds of collectives inside forwards and backwards, by field.

    (Q, C) each, 0.0 where no plan has any: a rank's, those of the stages before, and those of a
    rank's that can run beside compute.
    """
    fields, passes = dict[str, Num](), sharded_passes(data, parts, weights, trained)
    for name, inside in zip(("forward", "backward"), passes, strict=True):
        fields[name] = over(parts.sums, inside.whole)
        fields[f"ahead_{name}"] = over(parts.sums_ahead, inside.whole)
        fields[f"beside_{name}"] = over(parts.sums, inside.beside)
    return fields


def _summed(job: Job, table: PlanTable, parts: TellingParts, first: Array) -> Array:
    """All-reduce of what the first and the last rank both hold, if those are two, (C,).

    A tied table, or of a pipeline that runs both ways all parameters of the `first`.
    """
    apart = parts.looped & (table.pp > 1) & bool(job.model.updated.tied_embeddings)
    if not (apart | parts.both).any():
        return np.zeros(len(table))
    across = Hops.of(job, table, parts).across
    share = best_share(job.system)
    copied = pair_seconds(job, table, across, first / table.shards, share)
    return np.where(apart, tied_seconds(job, table, across, share), parts.both * copied)
