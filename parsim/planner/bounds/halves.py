"""Seconds of backwards split in two, I and W, on the few ranks that bounds look at."""

from __future__ import annotations

from dataclasses import dataclass

from parsim.arrays import Array, Columns
from parsim.cost.job import Job
from parsim.cost.step.layer_table import LayerTable
from parsim.plan import PlanTable
from parsim.planner.bounds.parts import TellingParts
from parsim.planner.bounds.work import by_layer, repeated_by_stage
from parsim.sim.step.backward_in_two import least_in_two


@dataclass(frozen=True, slots=True, kw_only=True)
class Halves(Columns):
    """Seconds of one micro-batch at the least, (Q, C) for Q ranks of C plans.

    `inner` are I of a rank's stages and `ahead_inner` those of the stages before them, `both` I and
    W of a rank's stages together. `layer_inner` and `layer_weight` (C,) are what each layer of a
    stage takes of them, of the stage where that is least, and `head` (C,) what the last stage takes
    more of both than its layers. `all_inner` (C,) are I of all stages, one after another,
    `first_inner` and `first_weight` (C,) I and W of stage 0.
    """

    inner: Array
    ahead_inner: Array
    both: Array
    layer_inner: Array
    layer_weight: Array
    head: Array
    all_inner: Array
    first_inner: Array
    first_weight: Array

    @classmethod
    def of(cls, job: Job, table: PlanTable, layers: LayerTable, parts: TellingParts) -> Halves:
        """Price the ranks of a table with equal numbers of ranks that stand for all."""
        least, _ = repeated_by_stage(table, layers, parts)
        inner, weight = least_in_two(job, table, layers, parts.counts, least)
        layer_inner, head_inner = by_layer(parts, inner)
        layer_weight, head_weight = by_layer(parts, weight)
        return cls(
            inner=parts.sums(inner),
            ahead_inner=parts.sums_ahead(inner),
            both=parts.sums(inner + weight),
            layer_inner=layer_inner,
            layer_weight=layer_weight,
            head=head_inner + head_weight,
            all_inner=(parts.every * inner).sum(axis=0),
            first_inner=inner[0],
            first_weight=weight[0],
        )
