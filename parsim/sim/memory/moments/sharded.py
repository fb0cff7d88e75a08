"""Moments of eager PyTorch's `fully_shard` (ZeRO-2 and 3), whose parameters and gradients travel.

One micro-batch of layers 1 .. n, without a pipeline. E are the parameters of embedding and head
(one group), G a layer's, both as they are gathered; R a layer's gradients as they are sent, s the
ranks that share them out, c the copies that the library makes of what it moves:

    forward   gather_forward   the buffer of layer n beside that of n-1, which stays for the next
                               copy: G (2 + c); only ZeRO-3 gathers again in each micro-batch
              head_forward     layer n's buffer, and the logits
              loss             ZeRO-3 has let E go
    backward  gather_ends      E on its way: E (1 + c)                                    ZeRO-3
              head
              gather           layer n, and n-1 on its way: G + G (1 + c)                 ZeRO-3
              layer            layer n and the buffer of n-1: 2 G
              below            `gather` and `layer` of n-1: n's activations are gone, and what its
              layer_below      gradients were scattered from is there until the next ones are: R
              scatter          n's gradients beside their flat buffer: G + R, or that, its shares,
                               the library's copy and the last parameter's gradient g, which the
                               loop in torch does not let go: R (1 + c + 1/s) + g
              scatter_first    the same of layer 1, when all shares are there: R (1 + c) + g
              embedding        the buffer R of layer 1 still
              scatter_ends     E as `scatter`

What E's gradients were scattered from is there until the next micro-batch's first `scatter`, the
head's gradient from `head` on. ZeRO-2 has all parameters gathered until the last micro-batch, whose
layers let them go before their `scatter`. A mixture's experts are a group of their own where they
have other ranks than their layer: gathered behind their layer, reduced before it.

Source: torch.distributed.fsdp `_fsdp_param_group.py` (`wait_for_unshard`, `post_backward`) and
`_fsdp_collectives.py` (`foreach_reduce`), torch 2.13; allocations of the executor's steps, recorded
operator by operator (CPU).
Leaves out: pipelines, whose stages are gathered and reduced as wholes; a reduction over replicas.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from parsim.arrays import Array, Flags
from parsim.cost.job import Job
from parsim.cost.layer.composed import composed_kept
from parsim.cost.layer.head_copies import copied_parameters
from parsim.cost.step.layer_table import LayerTable
from parsim.plan import PlanTable
from parsim.sim.memory.moments.groups import (
    GatheredGroup,
    ends_group,
    largest_groups,
    outer_parameters,
)
from parsim.sim.memory.moments.pipeline import Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Travelling:
    """Bytes at a moment, (B,): gathered parameters, gradients under way, activations gone."""

    gathered: Array
    gradients: Array
    gone: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharded:
    """What travels in a step without pipeline, for all plans; nothing of those that shard less.

    `layer` and `experts` are the groups of the largest layer, `ends` embedding and head. `shards`
    are the fp32 shards of ZeRO-2, `all_layers` the gathered parameters of all layers, `kept` what
    a layer keeps, `head` the head's gradient. `copies` is c.
    """

    two: Flags
    three: Flags
    layer: GatheredGroup
    experts: GatheredGroup
    ends: GatheredGroup
    shards: Array
    all_layers: Array
    kept: Array
    head: Array
    several: bool
    copies: float

    @classmethod
    def of(cls, job: Job, table: PlanTable, layers: LayerTable) -> Sharded:
        """Price it for all plans."""
        here = is_sharded(table)
        layer, experts = largest_groups(job, table, here)
        value, gathered = table.precision.parameter, float(table.precision.gathered)
        ends = ends_group(job, table, here)
        copied = sum(copied_parameters(layer, table) for layer in job.model.layers)
        all_parameters = job.model.parameters / table.tp + copied
        return cls(
            two=here & (table.zero_stage == 2),
            three=here & (table.zero_stage == 3),
            layer=layer,
            experts=experts,
            ends=ends,
            shards=here * all_parameters / np.maximum(table.shards, 1) * value,
            all_layers=here * all_parameters * gathered - ends.whole,
            kept=here * _kept(job, table, layers),
            head=here * _head_gradient(job, table),
            several=job.model.num_layers > 1,
            copies=job.software.scatter_copies,
        )

    def at(self, moment: Moment) -> Travelling:
        """What travels at a moment."""
        what, first = moment.what, not moment.with_gradients[0]
        gathered = self.two * (self.shards - self._let_go(what) * moment.resharding)
        gathered = gathered + self.three * self._ahead(what) + self.two * first * self._filled(what)
        gone = what in ("gather_forward", "below", "layer_below", "scatter")
        return Travelling(
            gathered=gathered if what != "update" else np.zeros_like(self.kept),
            gradients=self._gradients(what, first=first),
            gone=self.kept * (gone and (self.several or what == "scatter")),
        )

    def _ahead(self, what: str) -> Array:
        """What ZeRO-3 has gathered, or on its way."""
        once, whole = 1.0 + self.copies, self.layer.whole + self.experts.whole
        next_one = self.layer.whole * self.several
        if what in ("loss", "update", "scatter_ends"):
            return np.zeros_like(whole)
        if what == "gather_ends":
            return self.ends.whole * once
        inside = {
            "gather_forward": whole * (once + self.several),
            "head_forward": whole,
            "gather": self._next_gathered(),
            "below": self._next_gathered(),
            "layer": whole + next_one,
            "layer_below": whole + next_one,
            "scatter": next_one,
        }
        return self.ends.whole + inside.get(what, 0.0)

    def _next_gathered(self) -> Array:
        """The most at the beginning of a group's backward: it and the next one on its way."""
        groups = (self.layer.whole, self.experts.whole, self.layer.whole * self.several)
        there = np.cumsum(groups[:-1], axis=0)
        coming = np.stack(groups[1:]) * (1.0 + self.copies)
        return np.asarray(np.max(there + coming, axis=0))

    def _filled(self, what: str) -> Array:
        """Buffers beside the parameters when ZeRO-2 gathers them, in the first forward."""
        whole = self.layer.whole + self.experts.whole
        inside = {"gather_forward": whole * (self.copies + self.several), "head_forward": whole}
        return inside.get(what, np.zeros_like(whole))

    def _let_go(self, what: str) -> Array:
        """Parameters that ZeRO-2 has let go by then in its last backward."""
        layer = self.layer.whole + self.experts.whole
        if what in ("below", "layer_below"):
            return layer * self.several
        inside = {
            "scatter": layer,
            "scatter_first": self.all_layers,
            "embedding": self.all_layers,
            "scatter_ends": self.all_layers + self.ends.whole,
        }
        return inside.get(what, np.zeros_like(layer))

    def _gradients(self, what: str, *, first: bool) -> Array:
        """Gradients that are whole, or in a flat buffer, beside the shares that stay."""
        nothing = np.zeros_like(self.head)
        if what in ("gather_forward", "head_forward", "loss", "gather_ends", "head"):
            return nothing if first else self.ends.sent
        if what in ("gather", "layer"):
            return self.head + (nothing if first else self.ends.sent)
        if what in ("below", "layer_below"):
            return self.head + self.layer.sent * self.several
        groups = self.layer, self.experts
        if what == "scatter":
            return self.head + np.maximum(*(group.scattered(self.copies) for group in groups))
        if what == "scatter_first":
            sent = (group.scattered(self.copies, shares=False) for group in groups)
            return self.head + np.maximum(*sent)
        if what == "embedding":
            return self.head + self.layer.sent
        return self.ends.scattered(self.copies) if what == "scatter_ends" else nothing


def is_sharded(table: PlanTable) -> Flags:
    """Whether layers are gathered and reduced one by one, (B,)."""
    return np.asarray((table.zero_stage >= 2) & (table.pp == 1))


def _kept(job: Job, table: PlanTable, layers: LayerTable) -> Array:
    """The least that a layer keeps until its backward, (B,)."""
    composed = [composed_kept(layer, table, job.software) for layer in job.model.kinds]
    kept = np.stack(layers.kept) + np.stack(composed)
    whole = kept - np.where(table.recompute_layers > 0, np.stack(layers.dropped), 0.0)
    return np.asarray(np.minimum(kept, whole).min(axis=0))


def _head_gradient(job: Job, table: PlanTable) -> Array:
    """The head's gradient, whole until all layers have gone back, (B,).

    A tied table's is counted with the embedding's.
    """
    whole = outer_parameters(job.model.updated.behind, table) * float(table.precision.gathered)
    return np.zeros(len(table)) if job.model.tied_embeddings else np.asarray(whole)
