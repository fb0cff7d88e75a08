"""A model's layers as tensor-parallel ranks price them: what stages of that degree take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from parsim.arrays import Array
from parsim.cost.job import Job
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.stage_times import backward_times, forward_times, host_seconds, stage_pass
from parsim.cost.step.stages import layer_counts
from parsim.partition.priced import priced_graph
from parsim.partition.states import States, states_of
from parsim.plan import Plan, PlanTable


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedDegree:
    """Layers under one tensor-parallel degree and micro-batch.

    `states` are what the partitioner cuts, `least` (2, L) the seconds of the device alone, and of
    its host, for a micro-batch forward and back: each adds up whatever layers a stage has.
    """

    job: Job
    layers: LayerTable
    states: States
    least: Array

    @classmethod
    def of(cls, job: Job, plan: Plan, sent: float) -> PricedDegree:
        """Price the layers of a plan of one stage; `sent` as `priced_graph` takes it."""
        layers = LayerTable.of(job, PlanTable.of([plan]))
        return cls(
            job=job,
            layers=layers,
            states=states_of(priced_graph(job, plan, sent=sent)),
            least=_least(job, layers),
        )

    def seconds(self, cut: Sequence[int]) -> Array:
        """Forward and backward of a micro-batch on each stage of a cut, (S,)."""
        counts = layer_counts(self.job.model, cut)
        ahead = forward_times(self.job, self.layers, counts).time
        return np.asarray(ahead + backward_times(self.job, self.layers, counts).time)[:, 0]


def _least(job: Job, layers: LayerTable) -> Array:
    """Seconds of the device and of the host for each layer, embedding and head at the ends."""
    counts = layer_counts(job.model, (1,) * job.model.num_layers)
    before, behind = layers.before, layers.behind
    ahead = stage_pass(
        [cost.forward for cost in layers.kinds], counts, before.forward, behind.forward
    )
    back = stage_pass(
        [cost.backward for cost in layers.kinds], counts, before.backward, behind.backward
    )
    total = ahead.plus(back)
    return np.stack([total.seconds[:, 0], host_seconds(job, layers, total)[:, 0]])
