"""Every layer as a stage of its own: seconds, parameters and messages of each."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from parsim.arrays import Array
from parsim.cost.data.data_parallel import DataParallel
from parsim.cost.data.update import update_time
from parsim.cost.job import Job
from parsim.cost.step.chain import Cut
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.plan_layers import layers_of
from parsim.cost.step.stage_passes import backward_times, forward_times
from parsim.cost.step.stages import layer_counts, sent_bytes, stage_parameters, stage_weights
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
    table, cut = PlanTable.of([plan]), (1,) * job.model.num_layers
    forward, backward = layer_passes(job, table, cut)
    counts = layer_counts(job.model, cut)
    return SingleLayers(
        forward=forward[:, 0],
        backward=backward[:, 0],
        parameters=np.asarray(stage_parameters(job.model, table, counts))[:, 0],
        sent=sent_bytes(job.model, table, cut)[:, 0],
    )


def layer_passes(job: Job, table: PlanTable, cut: Cut) -> tuple[Array, Array]:
    """(forward, backward) seconds of stages that hold a layer each or none, (S, B)."""
    layers, counts = without_host(job, table), layer_counts(job.model, cut)
    forward, backward = (times(job, layers, counts) for times in (forward_times, backward_times))
    return forward.time, backward.time


def without_host(job: Job, table: PlanTable) -> LayerTable:
    """The layers without the host's seconds of a micro-batch."""
    none = np.zeros(len(table))
    return replace(layers_of(job, table), pause=none, calls=none)


def update_seconds(job: Job, table: PlanTable) -> Array:
    """Seconds in which one device's share of all layers is updated, (B,).

    Leaves out: the host's, which each rank spends whatever it holds.
    """
    counts = layer_counts(job.model, (job.model.num_layers,))
    weights, data = stage_weights(job.model.updated, table, counts), DataParallel.of(job, table)
    nothing = update_time(data, np.zeros_like(weights.parameters))
    return np.asarray((update_time(data, *weights) - nothing)[0])
