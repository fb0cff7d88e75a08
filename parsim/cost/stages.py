"""From layers to pipeline stages: seconds of each action, parameters of each stage.

All plans of one call share pp and v, so a stage is a row: arrays have shape (S, B) with S = pp v
stages and B plans. The embedding sits on stage 0, the head on stage S - 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parsim.cost.activations import boundary_bytes, kept_bytes, whole_bytes
from parsim.cost.job import Job
from parsim.cost.kernels import smooth_max
from parsim.cost.layers import LayerCoster
from parsim.cost.ordering import expected_maximum
from parsim.cost.passes import LayerCost, Pass
from parsim.model.model import Model
from parsim.model.operators import Layer
from parsim.plan import PlanTable

Array = NDArray[np.float64]


def even_cut(num_layers: int, num_stages: int) -> tuple[int, ...]:
    """Layers per stage, as even as possible; what is left over goes to the middle stages.

    The first and last stage also hold embedding and head, so they are the last to get an extra
    layer: 126 layers over 16 stages give 7, 8 x 14, 7.
    """
    base, extra = divmod(num_layers, num_stages)
    middle_out = sorted(range(num_stages), key=lambda s: abs(2 * s - num_stages + 1))
    lucky = set(middle_out[:extra])
    return tuple(base + (s in lucky) for s in range(num_stages))


def layer_counts(model: Model, cut: Sequence[int]) -> Array:
    """How many layers of each kind sit on each stage, (S, K)."""
    kinds = {id(layer): i for i, layer in enumerate(model.kinds)}
    counts = np.zeros((len(cut), len(kinds)))
    position = 0
    for stage, size in enumerate(cut):
        for layer in model.layers[position : position + size]:
            counts[stage, kinds[id(layer)]] += 1
        position += size
    return counts


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTable:
    """Per-layer costs of all plans: one entry per kind of layer, then embedding and head.

    `slowest_host` (B,) is the time of a tensor-parallel group's slowest host over the mean one's.
    """

    kinds: tuple[LayerCost, ...]
    recomputed: tuple[Pass, ...]
    kept: tuple[Array, ...]
    whole: tuple[Array, ...]
    embedding: LayerCost
    head: LayerCost
    embedding_kept: Array
    head_kept: Array
    boundary: Array
    slowest_host: Array

    @classmethod
    def of(cls, job: Job, table: PlanTable) -> LayerTable:
        """Price every kind of layer for every plan."""
        coster, model = LayerCoster(job, table), job.model
        costs = tuple(coster.cost(layer) for layer in model.kinds)
        seq, width = model.seq_len, model.hidden_size
        half = job.software.selective == "half-products"
        ring = job.software.context_keeps_output
        return cls(
            kinds=costs,
            recomputed=tuple(cost.recomputed(table, half) for cost in costs),
            kept=tuple(
                kept_bytes(
                    layer,
                    table,
                    seq,
                    width,
                    half_products=half,
                    keeps_output=job.software.keeps_output,
                    ring_output=ring,
                )
                for layer in model.kinds
            ),
            whole=tuple(whole_bytes(layer, table, seq, ring_output=ring) for layer in model.kinds),
            embedding=coster.cost(model.embedding),
            head=coster.cost(model.head),
            embedding_kept=whole_bytes(model.embedding, table, seq),
            head_kept=whole_bytes(model.head, table, seq),
            boundary=boundary_bytes(table, seq, width),
            slowest_host=slowest_host(job, table),
        )

    def take(self, rows: NDArray[np.int64]) -> LayerTable:
        """The same for some of the plans."""
        return LayerTable(
            kinds=tuple(cost.take(rows) for cost in self.kinds),
            recomputed=tuple(one.take(rows) for one in self.recomputed),
            kept=tuple(one[rows] for one in self.kept),
            whole=tuple(one[rows] for one in self.whole),
            embedding=self.embedding.take(rows),
            head=self.head.take(rows),
            embedding_kept=self.embedding_kept[rows],
            head_kept=self.head_kept[rows],
            boundary=self.boundary[rows],
            slowest_host=self.slowest_host[rows],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkTimes:
    """Seconds of one forward or backward per stage, (S, B): whole, exposed, recomputed.

    `pace` is the whole over the device's seconds: more than 1 where the host is slower.
    """

    time: Array
    exposed: Array
    recomputed: Array
    pace: Array


def forward_times(job: Job, layers: LayerTable, counts: Array) -> ChunkTimes:
    """Forward of one micro-batch on each stage."""
    parts = [cost.forward for cost in layers.kinds]
    total = _stage_pass(parts, counts, layers.embedding.forward, layers.head.forward)
    return _chunk(job, layers, total, None)


def backward_times(job: Job, layers: LayerTable, counts: Array) -> ChunkTimes:
    """Backward of one micro-batch on each stage, recomputation included."""
    parts = [
        cost.backward.plus(again)
        for cost, again in zip(layers.kinds, layers.recomputed, strict=True)
    ]
    total = _stage_pass(parts, counts, layers.embedding.backward, layers.head.backward)
    rows = len(layers.boundary)
    again = _stage_pass(list(layers.recomputed), counts, Pass.zero(rows), Pass.zero(rows))
    return _chunk(job, layers, total, again)


def _stage_pass(parts: list[Pass], counts: Array, first: Pass, last: Pass) -> Pass:
    def stack(name: str) -> Array:
        per_kind = np.stack([getattr(part, name) for part in parts])
        rows: Array = counts @ per_kind
        rows[0] += getattr(first, name)
        rows[-1] += getattr(last, name)
        return rows

    return Pass(kernels=stack("kernels"), exposed=stack("exposed"), launches=stack("launches"))


def _chunk(job: Job, layers: LayerTable, total: Pass, again: Pass | None) -> ChunkTimes:
    """Device and host race: the slower one sets the chunk's time, pnorm8(device, host)."""
    device = total.kernels + total.exposed
    host = _host(job, layers, total)
    time = smooth_max(device, host, 8.0) + 0.5 * job.software.microbatch_overhead
    pace = np.divide(time, device, out=np.zeros_like(device), where=device > 0)
    repeated = np.zeros_like(device)
    if again is not None:
        repeated = again.seconds * pace
    return ChunkTimes(time=time, exposed=total.exposed * pace, recomputed=repeated, pace=pace)


def _host(job: Job, layers: LayerTable, total: Pass) -> Array:
    """Seconds in which the slowest host of a tensor-parallel group launches a pass, (..., B)."""
    each = job.software.launch_cost * job.device.launch_factor
    return np.asarray(total.launches * each * layers.slowest_host)


def slowest_host(job: Job, table: PlanTable) -> Array:
    """Time of the slowest of a tensor-parallel group's hosts over that of the mean one, (B,).

    1 + host_spread E[max of tp standard normals]: each layer's collectives wait for the last rank
    to launch its part, and a host that is behind stays behind, because none waits for its device.
    Source: order statistics; host_spread is the stack's (`software.yaml`).
    Leaves out: ranks of other stages and replicas, which wait for each other once a micro-batch
    or once a step; hosts that are slow together.
    """
    return 1.0 + job.software.host_spread * expected_maximum(table.tp)


def host_share(job: Job, layers: LayerTable) -> Array:
    """Host seconds of launching a layer's forward over the device's seconds of it, (B,)."""
    first = layers.kinds[0].forward
    return np.asarray(_host(job, layers, first) / np.maximum(first.seconds, 1e-30))


def stage_parameters(model: Model, table: PlanTable, counts: Array) -> Array:
    """Parameters of each stage on one rank, (S, B), its experts' among them.

    With tied embeddings and more than one stage the last stage holds a second copy of the table.
    """
    per_kind = np.stack([rank_parameters(layer, table) for layer in model.kinds])
    rows: Array = counts @ per_kind
    rows[0] += rank_parameters(model.embedding, table)
    rows[-1] += rank_parameters(model.head, table)
    if model.tied_embeddings and len(counts) > 1:
        rows[-1] += tied_parameters(model, table)
    return rows


def stage_experts(model: Model, table: PlanTable, counts: Array) -> Array:
    """Those of `stage_parameters` that are experts', (S, B)."""
    per_kind = np.stack([rank_experts(layer, table) for layer in model.kinds])
    return np.asarray(counts @ per_kind)


def per_rank(stages: Array, pp: int) -> Array:
    """Sum stages r, r + pp, ... that one pipeline rank holds: (S, B) -> (p, B)."""
    return np.asarray(stages.reshape(len(stages) // pp, pp, -1).sum(axis=0))


def tied_parameters(model: Model, table: PlanTable) -> Array:
    """Parameters of the shared vocabulary table on one rank, (B,)."""
    return np.asarray(np.ceil(model.vocab_size / table.tp) * model.hidden_size)


def rank_parameters(layer: Layer, table: PlanTable) -> Array:
    """Parameters of one layer on one rank, (B,)."""
    shared = np.ceil(layer.split_parameters / table.tp) + layer.repeated_parameters
    return np.asarray(shared + rank_experts(layer, table))


def rank_experts(layer: Layer, table: PlanTable) -> Array:
    """Those of them that are experts', (B,): all experts' over ep x etp."""
    return np.asarray(layer.expert_parameters / table.expert_ranks)


def largest_layer_parameters(model: Model, table: PlanTable) -> Array:
    """Parameters of the largest single layer on one rank, (B,): what FSDP gathers at once."""
    return np.asarray(np.max([rank_parameters(layer, table) for layer in model.kinds], axis=0))
