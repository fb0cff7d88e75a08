"""Bytes of parameters, gradients and optimizer states that stay on a rank for the whole run.

Source: Rajbhandari et al. 2020 (ZeRO) for shards. Leaves out: padding of shards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from parsim.arrays import Array, Flags, Index
from parsim.cost.data.buckets import copies_gradients, sums_whole
from parsim.cost.job import Job
from parsim.cost.kernel.quantized import held_size
from parsim.plan import PlanTable


class Weights(NamedTuple):
    """Parameters of stages or ranks, (S, B) or (p, B), and how many are experts' (None: none)."""

    parameters: Array
    experts: Array | None = None

    def shared_out(self, table: PlanTable) -> tuple[tuple[Array, Index], ...]:
        """Parameters with how many ranks share them out: experts' apart."""
        if self.experts is None:
            return ((self.parameters, table.shards),)
        return (self.parameters - self.experts, table.shards), (self.experts, table.expert_shards)

    def less(self, part: Weights) -> Weights:
        """What is left without a part of it."""
        if self.experts is None:
            return Weights(self.parameters - part.parameters)
        experts = self.experts if part.experts is None else self.experts - part.experts
        return Weights(self.parameters - part.parameters, experts)

    def by(self, moved: Callable[[Array], Array]) -> Weights:
        """Both, put elsewhere, as from stages on ranks."""
        return Weights(
            moved(self.parameters), None if self.experts is None else moved(self.experts)
        )


def static_bytes(
    job: Job,
    table: PlanTable,
    weights: Weights,
    trained: Weights | None = None,
    originals: Array | None = None,
) -> tuple[Array, Array, Array]:
    """Parameters, gradients and optimizer states under ZeRO, (p, B) each.

    Mixed precision: 2 P + 4 P + 12 P with fp32 gradients; stage 1 shards the 12, 2 the 4, 3 the 2.
    In bf16_pure it is 2 P + 4 P + 4 P. Gradients that add up whole (`sums_whole`) are not sharded.
    An optimizer on the host (`optimizer_offload`) takes the last there, and what is shared out of
    the gradients. Ranks of a context-parallel group hold the same parameters, so shards are over
    dp_shard x cp; experts' over the ranks that hold the same experts. Of the `weights` only the
    `trained` (None: all) have gradients and states. The `originals` of modules trained beside
    adapters are kept beside them, frozen (None: no copies are made).
    """
    parts = [_states(job, table, *part) for part in (trained or weights).shared_out(table)]
    if trained is not None:
        parts += [_frozen(job, table, *part) for part in weights.less(trained).shared_out(table)]
    if originals is not None:
        parts.append(_frozen(job, table, originals, table.shards))
    parameters, gradients, states = (sum(column) for column in zip(*parts, strict=True))
    return np.asarray(parameters), np.asarray(gradients), np.asarray(states)


def host_static_bytes(job: Job, table: PlanTable, weights: Weights) -> Array:
    """Bytes of trained parameters that a rank has in its host's memory, (p, B).

    With `optimizer_offload` the fp32 copy, the states and a gradient, of the rank's share.
    """
    if not table.common.optimizer_offload:
        return np.zeros_like(weights.parameters)
    each = _state_bytes(job, table) + table.summed_bytes
    return np.asarray(sum(each * part / over for part, over in weights.shared_out(table)))


def _state_bytes(job: Job, table: PlanTable, alone: Flags | bool = False) -> Array:
    """Bytes of a parameter's optimizer states, and of its fp32 copy unless that is all it has."""
    p = table.precision
    return np.where(alone, 0.0, p.master) + job.optimizer.states * p.width


def _frozen(job: Job, table: PlanTable, by_rank: Array, over: Index) -> tuple[Array, Array, Array]:
    """Parameters that nobody updates: without gradients, states or a copy in fp32."""
    shards = np.where(table.zero_stage >= 3, over.astype(np.float64), 1.0)
    nothing = np.zeros_like(by_rank)
    return by_rank * held_size(job, table.precision) / shards, nothing, nothing


def _states(job: Job, table: PlanTable, by_rank: Array, over: Index) -> tuple[Array, Array, Array]:
    """Parameters, gradients and optimizer states, each shared out as its ZeRO stage says."""
    p, stage = table.precision, table.zero_stage
    shards = over.astype(np.float64)
    grad = _gradient_bytes(job, table)
    whole = sums_whole(job, table)
    # FSDP's shards are the fp32 copy itself: 16-bit parameters exist only while gathered
    alone = (stage >= 3) & (job.software.fp32_shards and p.master > 0)
    on_host = table.common.optimizer_offload
    kept = np.where(on_host & (stage >= 2) & ~whole, 0.0, 1.0)
    return (
        by_rank * np.where(alone, p.master, held_size(job, p)) / np.where(stage >= 3, shards, 1.0),
        by_rank * kept * np.where(alone, 4.0, grad) / np.where((stage >= 2) & ~whole, shards, 1.0),
        by_rank
        * (0.0 if on_host else 1.0)
        * _state_bytes(job, table, alone)
        / np.where(stage >= 1, shards, 1.0),
    )


def _gradient_bytes(job: Job, table: PlanTable) -> float:
    """Bytes of a parameter's gradient, and of the bf16 one beside it (`Software.gradient_copy`)."""
    copied = table.precision.parameter if copies_gradients(job, table) else 0.0
    return table.summed_bytes + copied
