"""Layer costs of single plans, remembered: many plans of a job differ in what no layer reads.

Strategies of whole replicas, cuts, schedules and the ways in which replicas meet leave every layer
as it is, so that whoever compares them (`parsim guide`) prices each micro-batch once.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from parsim.cost.job import Job
from parsim.cost.step.layer_table import LayerTable
from parsim.plan import Plan, PlanTable

KEPT = 256
"""Tables of one plan that are remembered, some tens of kilobytes each."""

_USUAL = Plan()
_BEHIND_LAYERS = (
    *("schedule", "actions", "action_times", "v", "stage_layers", "stages", "strategy"),
    *("bucket_bytes", "reduce_precision", "overlap_grad_reduce", "overlap_param_gather"),
    *("overlap_p2p", "scatter_p2p", "node_order", "replica_microbatches", "optimizer_offload"),
)
"""Fields of a plan that say what happens between layers and behind them."""
_PLACES = ("pp", "dp_replicate", "rank_order")
"""Fields that say where ranks lie, which matters to groups inside layers alone."""


def layers_of(job: Job, table: PlanTable) -> LayerTable:
    """Costs of the layers of plans on nodes of one kind; of a single plan remembered ones."""
    if len(table) > 1:
        return LayerTable.of(job, table)
    bare = replace(job, global_batch_size=None, reach=None)
    return _priced(bare, seen_by_layers(job, table.plan(0)))


@lru_cache(maxsize=KEPT)
def _priced(job: Job, plan: Plan) -> LayerTable:
    return LayerTable.of(job, PlanTable.of([plan]))


def seen_by_layers(job: Job, plan: Plan) -> Plan:
    """The plan with the usual values of all that its layers do not read.

    Where ranks lie matters to those that meet inside a layer: they split it, or share statistics.
    """
    unread = list(_BEHIND_LAYERS)
    if job.software.recomputes_last:
        unread.append("num_microbatches")
    if plan.tp * plan.cp * plan.ep * plan.etp == 1 and not plan.sync_batch_norm:
        unread += _PLACES
    return replace(plan, **{name: getattr(_USUAL, name) for name in unread})
