"""Parameters that are gathered together under ZeRO-2 and 3, and gradients reduced together.

A layer is a group, its experts another one where they have other ranks than it; embedding and head
are one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from parsim.arrays import Array, Flags, Index
from parsim.cost.data.buckets import reduced_bytes
from parsim.cost.job import Job
from parsim.cost.step.stages import rank_experts, rank_parameters
from parsim.model.layer import Layer
from parsim.model.operators import Experts, Linear
from parsim.plan import PlanTable


@dataclass(frozen=True, slots=True, kw_only=True)
class GatheredGroup:
    """Parameters that are gathered together, bytes (B,).

    `whole` as they are gathered, `sent` the gradients of those that are trained as they travel,
    `last` the gradient of the last of these, `shards` the ranks that share them out.
    """

    whole: Array
    sent: Array
    last: Array
    shards: Index

    def scattered(self, copies: float, *, shares: bool = True) -> Array:
        """While gradients are put into a flat buffer, or it is scattered, whichever is more."""
        share = 1.0 / self.shards if shares else 0.0
        return np.maximum(self.whole + self.sent, self.sent * (1.0 + copies + share) + self.last)


def largest_groups(job: Job, table: PlanTable, here: Flags) -> tuple[GatheredGroup, GatheredGroup]:
    """The groups of each plan's largest layer: its experts where they are apart, and all else."""
    sizes, trained, lasts = (
        np.stack([measure(layer, table) for layer in model.kinds])
        for model, measure in (
            (job.model, _group_sizes),
            (job.model.updated, _group_sizes),
            (job.model.updated, _last_parameters),
        )
    )
    largest = np.argmax(sizes.sum(axis=1), axis=0)[None, None, :]
    gathered, sent = float(table.precision.gathered), reduced_bytes(table)
    size, moved, last = (
        np.take_along_axis(each, largest, axis=0)[0] * here for each in (sizes, trained, lasts)
    )
    layer, experts = (
        GatheredGroup(
            whole=size[index] * gathered,
            sent=moved[index] * sent,
            last=last[index] * gathered,
            shards=np.maximum(shards, 1),
        )
        for index, shards in enumerate((table.shards, table.expert_shards))
    )
    return layer, experts


def ends_group(job: Job, table: PlanTable, here: Flags) -> GatheredGroup:
    """Embedding and head: one group, which ends with the head's matrix unless that is tied."""
    gathered = float(table.precision.gathered)
    trained, tied = job.model.updated, job.model.tied_embeddings
    last = np.zeros(len(table)) if tied else here * outer_parameters(trained.behind, table)
    return GatheredGroup(
        whole=here * outer_parameters(job.model.ends, table) * gathered,
        sent=here * outer_parameters(trained.ends, table) * reduced_bytes(table),
        last=last * gathered,
        shards=np.maximum(table.shards, 1),
    )


def _group_sizes(layer: Layer, table: PlanTable) -> Array:
    """Parameters of a layer but for experts that are apart, and of these, (2, B)."""
    experts = np.where(_apart(layer, table), rank_experts(layer, table), 0.0)
    return np.stack([rank_parameters(layer, table) - experts, experts])


def _last_parameters(layer: Layer, table: PlanTable) -> Array:
    """Values of the last parameter of a layer's two groups, (2, B).

    Where experts are apart the router is its layer's last one, too small to count.
    """
    size = np.zeros(len(table))
    for op in layer.operators:
        if isinstance(op, Linear):
            size = (op.outputs if op.bias else op.inputs * op.outputs) / table.tp
        elif isinstance(op, Experts):
            size = op.count * op.width * op.ffn_hidden_size / table.expert_ranks
    apart = _apart(layer, table)
    return np.stack([np.where(apart, 0.0, size), np.where(apart, size, 0.0)])


def _apart(layer: Layer, table: PlanTable) -> Flags:
    """Whether a layer's experts have other ranks than the layer, (B,)."""
    routed = layer.experts is not None
    return np.asarray(routed & (table.expert_ranks * table.tp * table.cp > 1))


def outer_parameters(layers: tuple[Layer, ...], table: PlanTable) -> Array:
    """Parameters of layers outside the blocks on one rank, (B,)."""
    sizes = [layer.split_parameters / table.tp + layer.repeated_parameters for layer in layers]
    return np.asarray(sum(sizes, start=np.zeros(len(table))))
