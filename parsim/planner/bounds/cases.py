"""Plans whose layers cost the same, and the costs of these layers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from parsim.arrays import sorted_values
from parsim.cost.job import Job
from parsim.cost.step.layer_table import LayerTable
from parsim.plan import PlanTable
from parsim.planner.distinct import Cases
from parsim.planner.space.options import layer_settings


def layer_cases(job: Job, table: PlanTable) -> Cases:
    """Plans whose layers cost the same, forward, backward and recomputed."""
    three = table.zero_stage == 3
    normalised = any(
        getattr(op, "statistics", 0) for layer in job.model.layers for op in layer.operators
    )
    return Cases.among(
        table.tp,
        table.pp,
        table.cp,
        table.ep,
        table.etp,
        table.dp,
        table.microbatch_size,
        table.num_microbatches,
        table.recompute,
        table.recompute_layers != 0,
        table.offload_layers,
        table.sequence_parallel,
        three,
        table.dp_shard if normalised else three & (table.dp_shard > 1),
        layer_settings(table),
    )


def price_layers(job: Job, table: PlanTable) -> LayerTable:
    """Costs of the layers of plans, whose settings may differ."""
    if len(table.settings) == 1:
        return LayerTable.of(job, table)
    numbers = layer_settings(table)
    each = [np.flatnonzero(numbers == number) for number in sorted_values(numbers)]
    priced = [LayerTable.of(job, _alike(table.take(rows))) for rows in each]
    return LayerTable.joined(priced).take(np.argsort(np.concatenate(each)))


def _alike(table: PlanTable) -> PlanTable:
    """Plans whose settings cost their layers the same, all with one of these."""
    return replace(table, setting=np.zeros_like(table.setting), settings=table.settings[:1])
