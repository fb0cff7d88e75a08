"""A model's layers as tensor-parallel ranks price them: what stages of that degree take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from parsim.arrays import Array
from parsim.cost.data.static_bytes import static_bytes
from parsim.cost.job import Job
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.stage_passes import backward_times, forward_times, host_seconds, stage_pass
from parsim.cost.step.stages import layer_counts, stage_weights, trained_weights
from parsim.partition.given_replicas import priced_graph
from parsim.partition.states import States, states_of
from parsim.plan import Plan, PlanTable, Recompute
from parsim.sim.step.kept_bytes import layers_kept


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedDegree:
    """Layers under one tensor-parallel degree and micro-batch.

    The table has the plan that recomputes nothing, and the one that recomputes all.
    `states` are what the partitioner cuts, `least` (2, L) the seconds of the device alone, and of
    its host, for a micro-batch forward and back: each adds up whatever layers a stage has.
    """

    job: Job
    table: PlanTable
    layers: LayerTable
    states: States
    least: Array

    @classmethod
    def of(cls, job: Job, plan: Plan, sent: float) -> PricedDegree:
        """Price the layers of a plan of one stage; `sent` as `priced_graph` takes it."""
        table = PlanTable.of([plan, replace(plan, recompute=Recompute.FULL)])
        layers = LayerTable.of(job, table)
        return cls(
            job=job,
            table=table,
            layers=layers,
            states=states_of(priced_graph(job, plan, sent=sent)),
            least=_least(job, layers),
        )

    def seconds(self, cut: Sequence[int]) -> Array:
        """Forward and backward of a micro-batch on each stage of a cut, (S,)."""
        counts = layer_counts(self.job.model, cut)
        ahead = forward_times(self.job, self.layers, counts).time
        return np.asarray(ahead + backward_times(self.job, self.layers, counts).time)[:, 0]

    def bytes(self, cut: Sequence[int]) -> Array:
        """Parameters, gradients and optimizer states on a rank of each stage of a cut, (S,).

        Without gradients under eager stacks, whose gradients may come and go.
        """
        counts = layer_counts(self.job.model, cut)
        weights = stage_weights(self.job.model, self.table, counts)
        trained = trained_weights(self.job.model, self.table, counts, weights)
        parameters, gradients, optimizer = static_bytes(self.job, self.table, weights, trained)
        states = parameters + optimizer + (0.0 if self.job.software.eager else gradients)
        return np.asarray(states)[:, 0]

    def kept(self, cut: Sequence[int]) -> Array:
        """What a micro-batch in flight keeps on each stage at least, however recomputed, (S,).

        Nothing under eager stacks, which count some of it as messages, and under those that keep
        what enters a recomputed stage alone.
        """
        if self.job.software.eager or self.job.software.checkpoints_stages:
            return np.zeros(len(cut))
        kept = layers_kept(self.layers, layer_counts(self.job.model, cut))
        return np.asarray(kept.min(axis=1))


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
