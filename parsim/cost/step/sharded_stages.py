"""What sharded parameters and gradients add to each forward and backward of a stage.

ZeRO-3 gathers and scatters layer by layer (`cost/step/shard_programs.py`), ZeRO-2 scatters by
buckets; what communicates once a step is in `cost/data/data_parallel.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from parsim.arrays import Array, Index
from parsim.cost.data.data_parallel import DataParallel
from parsim.cost.data.static_bytes import Weights
from parsim.cost.job import Job
from parsim.cost.kernel.residuals import measured_factor
from parsim.cost.layer.passes import Pass
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.shard_programs import Unit, backward_pass, forward_pass
from parsim.cost.step.shard_wires import BucketWire, LayerWire, Wire
from parsim.cost.step.stage_passes import ChunkTimes
from parsim.cost.step.stages import layer_counts, stage_weights, trained_weights
from parsim.cost.streams import pipelined
from parsim.plan import PlanTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharded:
    """Passes of stages with sharded parameters.

    `counts` (S, K) layers of each kind on each stage, `deeper` what these repeat more because some
    are recomputed as a whole (taken as shared out evenly to all of a stage), `weights` (S, B) of
    each stage on a rank, `trained` those of them that have gradients, `speed`
    (B,) the share of its speed that compute keeps beside a collective. The software runs the share
    `overlap` of the collectives beside compute and the rest in line.
    """

    job: Job
    layers: LayerTable
    counts: Array
    deeper: Pass | None
    data: DataParallel
    weights: Weights
    trained: Weights
    speed: Array

    @property
    def table(self) -> PlanTable:
        """The plans that are priced."""
        return self.data.table

    def passes(self, forward: ChunkTimes, backward: ChunkTimes) -> tuple[ChunkTimes, ChunkTimes]:
        """Forward and backward with the collectives of ZeRO-2 and 3."""
        if (self.table.zero_stage == 2).any():
            backward = self._by_bucket(backward)
        if (self.table.zero_stage == 3).any():
            forward, backward = self._by_layer(forward, backward)
        return forward, backward

    def _by_bucket(self, chunk: ChunkTimes) -> ChunkTimes:
        """A backward whose gradients are scattered bucket by bucket as they become ready."""
        wire = BucketWire.of(self.data, *self.trained)
        beside = pipelined(chunk.time, wire.whole, wire.buckets, self.speed)
        waited = self._waited("sharded_waited_backward", wire.modelled)
        return self._mixed(chunk, beside, wire.whole, self.table.common.overlap_grad_reduce, waited)

    def _by_layer(self, forward: ChunkTimes, backward: ChunkTimes) -> tuple[ChunkTimes, ChunkTimes]:
        """Both passes with gathers and reduce-scatters of layers and root."""
        ahead, gather, scatter, modelled, both = LayerWire.of(
            self.data, self.counts, self.weights.parameters, self.trained.parameters
        )
        first, second = forward.time.copy(), backward.time.copy()
        common = self.table.common
        for stages, at in self._alike():
            if self._share(common.overlap_param_gather):
                first[stages] = self._forward(forward, ahead, at)
            if self._share(common.overlap_grad_reduce):
                second[stages] = self._backward(backward, gather, scatter, at)
        waited = self._waited("sharded_waited_forward", modelled)
        forward = self._mixed(forward, first, ahead.whole, common.overlap_param_gather, waited)
        waited = self._waited("sharded_waited_backward", both)
        wire = gather.whole + scatter.whole
        return forward, self._mixed(backward, second, wire, common.overlap_grad_reduce, waited)

    def _alike(self) -> Iterator[tuple[Index, int]]:
        """Stages with the same parts, and one of them."""
        ends = np.zeros((len(self.counts), 2))
        ends[0, 0] = ends[-1, 1] = 1.0
        parts = [self.counts, ends]
        parts += [] if self.deeper is None else [self.deeper.seconds]
        _, which = np.unique(np.hstack(parts), axis=0, return_inverse=True)
        for group in range(which.max() + 1):
            stages = np.flatnonzero(which.ravel() == group)
            yield stages, int(stages[0])

    def _forward(self, chunk: ChunkTimes, gather: Wire, at: int) -> Array:
        parts = [kind.forward for kind in self.layers.kinds]
        units = self._units(chunk, parts, gather, gather, at)
        first, last = self._ends(chunk, self.layers.before.forward, units, at)
        return forward_pass(first, units, last, gather.root[at], self.speed)

    def _backward(self, chunk: ChunkTimes, gather: Wire, scatter: Wire, at: int) -> Array:
        pairs = zip(self.layers.kinds, self.layers.recomputed, strict=True)
        parts = [kind.backward.plus(again) for kind, again in pairs]
        if self.deeper is not None and self.counts[at].any():
            share = 1.0 / float(self.counts[at].sum())
            each = Pass(
                kernels=self.deeper.kernels[at],
                exposed=self.deeper.exposed[at],
                launches=self.deeper.launches[at],
            )
            parts = [part.plus(each, share) for part in parts]
        units = self._units(chunk, parts, gather, scatter, at)
        first, last = self._ends(chunk, self.layers.before.backward, units, at)
        roots = (gather.root[at], scatter.root[at])
        return backward_pass(last, units, first, roots, self.speed)

    def _units(
        self, chunk: ChunkTimes, parts: list[Pass], gather: Wire, scatter: Wire, at: int
    ) -> list[Unit]:
        """The stage's layers, those of a kind in a row."""
        return [
            Unit(
                count=int(self.counts[at, k]),
                compute=part.seconds * chunk.pace[at],
                gather=gather.layers[k, at],
                scatter=scatter.layers[k, at],
            )
            for k, part in enumerate(parts)
            if self.counts[at, k]
        ]

    def _ends(
        self, chunk: ChunkTimes, embedding: Pass, units: list[Unit], at: int
    ) -> tuple[Array, Array]:
        """Seconds of the embedding, and of the head: what is left of the pass."""
        first = embedding.seconds * chunk.pace[at] * (at == 0)
        layers = sum((unit.count * unit.compute for unit in units), start=np.zeros_like(first))
        return first, np.maximum(chunk.time[at] - first - layers, 0.0)

    def _waited(self, kind: str, seconds: Array) -> Array | float:
        """Share of what collectives of so many seconds add that compute waits; 1 if unmeasured."""
        return np.minimum(measured_factor(self.job.system.residuals, kind, seconds), 1.0)

    def _share(self, overlap: bool) -> float:
        return self.job.software.overlap if overlap else 0.0

    def _mixed(
        self,
        chunk: ChunkTimes,
        beside: Array,
        wire: Array,
        overlap: bool,
        waited: Array | float,
    ) -> ChunkTimes:
        """The software's share beside compute, the rest in line.

        What the pass takes longer is exposed; of that the share `waited` where waits were measured:
        the rest are copies, hooks, and compute that the collectives slow.
        """
        share = self._share(overlap)
        inline = chunk.time + wire
        time = inline + share * (np.where(wire > 0.0, beside, inline) - inline)
        exposed = chunk.exposed + waited * (time - chunk.time)
        return replace(chunk, time=time, exposed=exposed)


def sharding_times(job: Job, table: PlanTable) -> list[float]:
    """Seconds of the gathers of one forward, and of the gathers and reduce-scatters of a backward.

    Of the table's one plan, as if the model were one stage; nothing of them hidden.
    """
    data, counts = DataParallel.of(job, table), layer_counts(job.model, (job.model.num_layers,))
    weights = stage_weights(job.model, table, counts)
    trained = trained_weights(job.model, table, counts, weights)
    wire = LayerWire.of(data, counts, weights.parameters, trained.parameters)
    return [float(wire.modelled_forward[0, 0]), float(wire.modelled_backward[0, 0])]
