"""The closed form of the lower bound (tier A): seconds that a step takes at the least.

A pipeline rank r is busy for its work, cannot begin before the first micro-batch has passed the
stages before it, and its last gradient has to pass them again, if backwards are whole:

    end[r] = sum of F and hops before r + m x (F + B of its stages) + sum of B and hops before r

The micro-batch that starts last waits for the m - 1 others on stage 0 and then passes all stages:

    end[0] >= (m - 1) x F of stage 0 + sum of all F + sum of all B, if backwards are whole

of backwards in two I passes back and W does not: the last I of any rank has to pass the stages
before it, and W of stage 0 comes behind; nor does stage 0 begin with I and W before the first
micro-batch has passed all stages and come back:

    end[0] >= sum of F and hops before r + m x (F + I of its stages) + sum of I and hops before r
              + W of stage 0
    end[0] >= sum of all F + sum of all I + (m - 1) x max(F, I + W of stage 0) + W of stage 0

A pipeline that runs both ways takes half of the micro-batches on each of a rank's stages;
then come the reductions that cannot be hidden, the norm of all gradients, the update. All of it are
sums and maxima of which tier B has more terms, so that the step is never shorter. What the schedule
adds by its order, what ZeRO-3's programs lose at their ends and what the last backwards lose to the
reduction beside them is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from parsim.arrays import Array, Index, Num
from parsim.cluster.hardware import Cluster
from parsim.cost.order_statistics import later_than_of_node
from parsim.cost.step.layer_table import LayerTable
from parsim.model.model import Model
from parsim.plan import Plan, PlanTable
from parsim.planner.bounds.halves import Halves
from parsim.planner.bounds.schedules import Runs
from parsim.planner.bounds.tail import Tail
from parsim.planner.bounds.work import Work

ROUNDING = 1e-9
"""Share by which a bound may exceed a step by rounding alone."""


def growth(cluster: Cluster) -> float:
    """What every step grows by with its devices, less what rounding may take from a bound."""
    spread = max(system.straggler_spread for system in cluster.systems)
    late = float(later_than_of_node(np.array(cluster.num_devices)))
    return (1.0 + spread * late) * (1.0 - ROUNDING)


def shared_bound(
    tables: Sequence[LayerTable], table: PlanTable, model: Model, devices: Sequence[int]
) -> Array:
    """Seconds that no placement of a plan can be shorter than, (B,).

    M x sum over kinds j of layers (L_j u_j) x tp cp / sum over groups k (N_k s_k),  s_k = max_j
    u_j / l_kj

    M micro-batches in all, L_j layers of l_kj seconds forward and backward on group k's N_k
    devices, u_j those on group 0. A rank is busy for at least (its layers' u) / s_k of its slowest
    kind, and is so for no longer than the step; the sum over all ranks of both sides is the bound,
    whatever the cut and the batches are. Embedding and head are left out.
    """
    each = np.array(
        [
            [
                kind.forward.seconds + kind.backward.plus(again).seconds
                for kind, again in zip(priced.kinds, priced.recomputed, strict=True)
            ]
            for priced in tables
        ]
    )
    layers = np.array([model.blocks.count(kind) for kind in model.kinds], dtype=np.float64)
    work = np.einsum("k,kb->b", layers, each[0])
    speed = (each[0] / each).max(axis=1)
    power = np.array(devices, dtype=np.float64) @ speed
    microbatches = table.num_microbatches * table.dp
    return np.asarray(microbatches * work * table.tp * table.cp / power)


class Seconds(NamedTuple):
    """What plans take at the least, with what the step grows by, (B,) each.

    `forward`, `inner` and `weight` are those of a layer's share of a stage's F, I and W, of one
    micro-batch; a backward is both of them, and of plans with whole ones `inner` is all of it.
    `head` is what F and backward of the last stage take more than their layers, `message` one
    between two ranks, `behind` what comes behind the last action of all.
    """

    step: Array
    forward: Array
    inner: Array
    weight: Array
    head: Array
    message: Array
    behind: Array

    @classmethod
    def unknown(cls, plans: int) -> Seconds:
        """Seconds of plans that are not looked at: their steps are infinite."""
        return cls(np.full(plans, np.inf), *np.zeros((len(cls._fields) - 1, plans)))

    def along(self, rows: Index, ways: Array) -> Array:
        """Seconds of the steps of some plans, of ways with (F, I, W, heads, messages).

        Every way through a schedule's actions is one bound; (T, 5) of them, the largest counts.
        """
        each = np.stack([column[rows] for column in self[1:6]])
        return np.asarray((ways @ each).max(axis=0) + self.behind[rows])


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedForms:
    """Some plans with their parts beside them: columns of one length.

    `halves` are there if the backwards of all of them are in two, and None if those of none are.
    """

    runs: Runs
    work: Work
    halves: Halves | None
    tail: Tail
    common: Plan
    overlap: float

    def step(self) -> Seconds:
        """Seconds of a step at the least, and of its parts."""
        whole, after = self.runs.whole, self.tail.update + self._gathers()
        ends, reductions = self._ends(), self._reductions()
        reduced = ends + reductions
        # of whole backwards those of stage 0 are the last, whatever rank has worked the longest
        last = np.where(whole, ends.max(axis=0) + reduced[0] - ends[0], reduced.max(axis=0))
        tied = np.where(whole, last, np.maximum(reduced[0], reduced[-1])) + self.tail.tied
        behind = self.tail.norm + after.max(axis=0)
        grown = (1.0 + self.tail.grows) * (1.0 - ROUNDING)
        inner, weight, head = self._backward_of_layer()
        return Seconds(
            step=(np.maximum(last, tied) + behind) * grown,
            forward=self.work.layer_forward * grown,
            inner=inner * grown,
            weight=weight * grown,
            head=(self.work.head_forward + head) * grown,
            message=self.work.message * grown,
            behind=(np.where(whole, reductions[0], 0.0) + behind) * grown,
        )

    def _backward_of_layer(self) -> tuple[Array, Num, Array]:
        """(I, W, what the last stage takes more), (B,) each; whole backwards are all I."""
        if self.halves is None:
            return self.work.layer_backward, 0.0, self.work.head_backward
        return self.halves.layer_inner, self.halves.layer_weight, self.halves.head

    def _ends(self) -> Array:
        """When the actions of each rank, and of those before it if backwards are whole, are run."""
        work, runs = self.work, self.runs
        (busy, again), (lead, back) = self._on_rank(), self._ahead()
        if self.halves is not None:
            ends = lead + runs.count * (busy + np.maximum(again, self.halves.both))
            ends[0] = np.maximum(ends[0], self._last_weights(lead, busy, self.halves))
            return np.asarray(ends)
        once, times = np.where(runs.naive, 1, runs.count), np.where(runs.naive, runs.count, 1)
        ends = (lead + np.where(runs.whole, back, 0.0) + once * (busy + again)) * times
        if self.common.actions is None:
            returns = work.all_forward + np.where(runs.whole, work.all_backward, 0.0)
            ends[0] = np.maximum(ends[0], (runs.count - 1) * work.first + returns)
        return np.asarray(ends)

    def _on_rank(self) -> tuple[Array, Array]:
        """Forward and backward of a micro-batch on each rank, (Q, B), blocking sends among them."""
        work, tail, (forward, backward) = self.work, self.tail, self._beside
        speed = np.minimum(work.kept + work.by_memory * tail.memory_left, 1.0)
        ahead, behind = speed * tail.beside_forward, speed * tail.beside_backward
        busy = _passes(work.forward, tail.forward, ahead, forward, work.copied)
        again = _passes(work.backward, tail.backward, behind, backward, work.copied)
        return work.blocked + busy, again

    def _ahead(self) -> tuple[Array, Array]:
        """The first forward on its way to each rank and the last gradient back from it, (Q, B)."""
        work, tail, (forward, backward) = self.work, self.tail, self._beside
        copies, ahead, behind = work.ahead_copied, tail.ahead_forward, tail.ahead_backward
        lead = _passes(work.ahead_forward, ahead, ahead, forward, copies)
        back = _passes(work.ahead_backward, behind, behind, backward, copies)
        return work.sent_ahead + lead, work.sent_back + back

    @property
    def _beside(self) -> tuple[float, float]:
        """The shares of gathers and of reductions that run beside compute."""
        common, overlap = self.common, self.overlap
        return overlap * common.overlap_param_gather, overlap * common.overlap_grad_reduce

    def _last_weights(self, lead: Array, forward: Array, halves: Halves) -> Array:
        """When the last W of stage 0 ends at the least where backwards are in two, (B,)."""
        work, count = self.work, self.runs.count
        back = work.sent_back + halves.ahead_inner
        chain = (lead + count * (forward + halves.inner) + back).max(axis=0)
        first = np.maximum(work.first, halves.first_inner + halves.first_weight)
        passed = work.all_forward + halves.all_inner + (count - 1) * first
        return np.asarray(np.maximum(chain, passed) + halves.first_weight)

    def _reductions(self) -> Array:
        """What a rank's gradients take at the least behind its last action, (Q, B)."""
        tail = self.tail
        if not tail.beside:
            return tail.reduced
        ready = self.work.last * (1.0 - 1.0 / tail.first_buckets)
        rest = tail.first_buckets * tail.first_bucket - ready
        longer = np.where(self.runs.replicated, np.maximum(rest, tail.first_bucket), 0.0)
        first = np.maximum(tail.first_bucket, longer)
        each = np.where(self.runs.completes_either, 0.0, tail.bucket)
        return np.where(self.runs.whole, first, each)

    def _gathers(self) -> Num:
        """What shows of the gather of updated parameters, (Q, B)."""
        beside = self.work.forward + self.work.ahead_forward + self.work.copied_most
        return _exposed(beside, self.tail.gathered, self.tail.gathered, self._beside[0])


def _passes(compute: Array, wire: Num, most: Num, share: float, copies: Num) -> Array:
    """Passes with what shows of their collectives, or the copies to the host beside them."""
    return np.asarray(np.maximum(compute + _exposed(compute, wire, most, share), copies))


def _exposed(compute: Array, wire: Num, most: Num, share: float) -> Num:
    """What collectives beside compute add at the least, of which it hides no more than `most`.

    G, of the share less min(C, `most`): of collectives G' that may be beside it compute of speed v
    hides v G', as it loses (1 - v) of those.
    """
    if share == 0.0 or isinstance(wire, float):  # no plan has any
        return wire
    return np.asarray(wire - share * np.minimum(compute, most))
