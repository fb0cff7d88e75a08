"""Seconds of a micro-batch on the few ranks that bounds look at: passes and messages.

Nothing of it depends on how replicas share states or on the schedule, so that it is computed once
for all plans with equal degrees, micro-batch, recomputation and chunks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from parsim.arrays import Array, Columns, Num
from parsim.cost.collective.mesh_messages import best_share
from parsim.cost.job import Job
from parsim.cost.layer.interference import shares_kept
from parsim.cost.layer.layers import recomputes_layers
from parsim.cost.layer.passes import Pass
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.messages import message_seconds
from parsim.cost.step.offload import copy_seconds, offloads
from parsim.cost.step.stage_passes import backward_times, forward_times
from parsim.plan import PlanTable
from parsim.planner.bounds.hops import Hops
from parsim.planner.bounds.parts import TellingParts, over


@dataclass(frozen=True, slots=True, kw_only=True)
class Work(Columns):
    """Seconds of one micro-batch, (Q, C) for Q ranks of C plans.

    `forward`, `backward` of a rank's stages and `ahead_forward`, `ahead_backward` of those before
    them; `sent_ahead` and `sent_back` messages on the way to a rank and back from it, `blocked`
    those that keep it. `layer_forward` and `layer_backward` (C,) are what each layer of a stage
    takes of its pass, of the stage where that is least, and `message` (C,) the shortest message
    between two ranks; `head_forward` and `head_backward` (C,) what the last stage takes more than
    its layers. `first` and `last` (C,) are forward and backward of stage 0, `all_forward` and
    `all_backward` (C,) of all stages, one after another. `copied` and `ahead_copied` (Q, C) are
    copies to the host of a rank's stages and of those before it, one direction, at the least;
    `copied_most` (Q, C) of both at the most. Beside collectives compute keeps the share `kept` of
    its speed, and `by_memory` that of what they leave of the bandwidth, (C,). What no plan of the
    table has is 0.0.
    """

    forward: Array
    backward: Array
    ahead_forward: Array
    ahead_backward: Array
    sent_ahead: Array
    sent_back: Array
    blocked: Array
    layer_forward: Array
    layer_backward: Array
    head_forward: Array
    head_backward: Array
    message: Array
    first: Array
    last: Array
    all_forward: Array
    all_backward: Array
    copied: Num
    ahead_copied: Num
    copied_most: Num
    kept: Array
    by_memory: Array

    @classmethod
    def of(cls, job: Job, table: PlanTable, layers: LayerTable, parts: TellingParts) -> Work:
        """Price the ranks of a table with equal numbers of ranks that stand for all."""
        forward = forward_times(job, layers, parts.counts).time
        repeated = repeated_by_stage(table, layers, parts)
        backward, longest = (
            backward_times(job, layers, parts.counts, each).time for each in repeated
        )
        ahead, back, blocked, shortest = _messages(job, table, parts)
        copies, most = _copies(job, table, layers, parts)
        ahead_of, behind_of = np.maximum(forward, copies), np.maximum(backward, copies)
        layer_forward, head_forward = by_layer(parts, ahead_of)
        layer_backward, head_backward = by_layer(parts, behind_of)
        kept, by_memory = shares_kept(job.system, layers.kinds)
        return cls(
            forward=parts.sums(forward),
            backward=parts.sums(backward),
            ahead_forward=parts.sums_ahead(forward),
            ahead_backward=parts.sums_ahead(backward),
            sent_ahead=ahead,
            sent_back=back,
            blocked=blocked,
            layer_forward=layer_forward,
            layer_backward=layer_backward,
            head_forward=head_forward,
            head_backward=head_backward,
            message=shortest,
            first=ahead_of[0],
            last=np.asarray(np.maximum(longest, most)[0]),
            all_forward=(parts.every * ahead_of).sum(axis=0),
            all_backward=(parts.every * behind_of).sum(axis=0),
            copied=over(parts.sums, copies),
            ahead_copied=over(parts.sums_ahead, copies),
            copied_most=over(parts.sums, most) + over(parts.sums_ahead, most),
            kept=kept,
            by_memory=by_memory,
        )


def by_layer(parts: TellingParts, stages: Array) -> tuple[Array, Array]:
    """The least share that a layer has of its stage's seconds, and what the last stage has more.

    From (R, C) to (C,) each.
    """
    layers = parts.counts.sum(axis=1)
    shares = np.divide(stages, layers, out=np.full_like(stages, np.inf), where=layers > 0)
    least = shares.min(axis=0)
    return least, stages[-1] - layers[-1] * least


def borders(job: Job) -> list[int]:
    """The distinct numbers of values that a stage may send to the next one."""
    model = job.model
    last = len(model.layers) - len(model.behind)
    ends = model.layers[max(len(model.before) - 1, 0) : last]
    return list(dict.fromkeys(layer.outputs for layer in ends))


def _messages(job: Job, table: PlanTable, parts: TellingParts) -> Iterator[Array]:
    """Seconds of messages at the narrowest border of the model.

    Each of the ranks' `Hops`, (Q, C), and the shortest between two neighbouring ranks, (C,).
    """
    hops = Hops.of(job, table, parts)
    share = best_share(job.system)
    pairs = [message_seconds(job, table, values, share) for values in borders(job)]
    inside, across = (np.min(np.stack(each), axis=0) for each in zip(*pairs, strict=True))
    across = np.where(np.isfinite(across), across, 0.0)  # no network: no message leaves a node
    for count, leaving in (hops.ahead, hops.back, hops.blocked):
        yield (count - leaving) * inside + leaving * across
    yield np.where(hops.apart, across, inside)


def offloaded(table: PlanTable, layers: LayerTable, parts: TellingParts) -> tuple[Array, Array]:
    """(least, most) bytes of a micro-batch that each kind of stage moves to the host, (R, C) each.

    Which kinds of layer its first ones are is not looked at: of one kind both are exact.
    """
    moving = np.minimum(table.offload_layers, parts.counts.sum(axis=1))
    moved = np.stack(layers.moved)
    return moving * moved.min(axis=0), moving * moved.max(axis=0)


def repeated_by_stage(
    table: PlanTable, layers: LayerTable, parts: TellingParts
) -> tuple[Pass | None, Pass | None]:
    """(least, most) that each kind of stage repeats more for its layers recomputed as a whole.

    (R, C) each, None where no plan has any. Which kinds of layer these are is not looked at: of one
    kind both are exact.
    """
    if not recomputes_layers(table):
        return None, None
    some = np.minimum(table.recompute_layers, parts.counts.sum(axis=1))
    each = {
        name: np.stack([getattr(kind, name) for kind in layers.deeper])
        for name in ("kernels", "exposed", "launches")
    }
    least = Pass(**{name: some * columns.min(axis=0) for name, columns in each.items()})
    most = Pass(**{name: some * columns.max(axis=0) for name, columns in each.items()})
    return least, most


def _copies(job: Job, table: PlanTable, layers: LayerTable, parts: TellingParts) -> tuple[Num, Num]:
    """(least, most) seconds of copies to the host on each kind of stage, (R, C) each, or 0.0."""
    if not offloads(table):
        return 0.0, 0.0
    least, most = offloaded(table, layers, parts)
    sure = copy_seconds(job, least) * (not job.system.on_cpu)  # whose backwards copy nothing
    return sure, copy_seconds(job, most)
