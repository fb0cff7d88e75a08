"""Every layer of a model as a stage of its own: what partitions and balanced cuts are made from."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from parsim.arrays import Array
from parsim.cost.job import Job
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.parameters import stage_parameters
from parsim.cost.step.stage_times import backward_times, forward_times
from parsim.cost.step.stages import layer_counts, sent_bytes
from parsim.plan import Plan, PlanTable


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleLayers:
    """Prices of L layers, (L,): what precedes the first counts to it, the head to the last.

    `forward` and `backward` are seconds of a micro-batch, `parameters` those of one rank, `sent`
    bytes of a micro-batch that go on to the next layer (the last sends none).
    """

    forward: Array
    backward: Array
    parameters: Array
    sent: Array

    @property
    def seconds(self) -> Array:
        """Forward and backward together, (L,)."""
        return self.forward + self.backward


def single_layers(job: Job, plan: Plan) -> SingleLayers:
    """Price each layer alone, under a plan's degrees, micro-batch, precision and recomputation.

    Leaves out: what a stack does between micro-batches, which a stage has once, not once a layer.
    """
    quiet = replace(job, software=replace(job.software, microbatch_overhead=0.0))
    table = PlanTable.of([plan])
    cut = (1,) * job.model.num_layers
    counts, layers = layer_counts(job.model, cut), LayerTable.of(quiet, table)
    return SingleLayers(
        forward=forward_times(quiet, layers, counts).time[:, 0],
        backward=backward_times(quiet, layers, counts).time[:, 0],
        parameters=np.asarray(stage_parameters(job.model, table, counts))[:, 0],
        sent=sent_bytes(job.model, table, cut)[:, 0],
    )
