"""What a micro-batch needs on the ranks that stand for a plan's: seconds of passes, bytes kept.

Nothing of it depends on how replicas share states or on the schedule, so that it is computed once
for all plans with equal degrees, micro-batch, recomputation and chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from parsim.arrays import Array, Columns, Flags, Num
from parsim.cost.job import Job
from parsim.cost.layer.kept.autocast import widened
from parsim.cost.layer.kept.operator_tensors import border_bytes
from parsim.cost.layer.passes import Pass
from parsim.cost.layer.recomputed_layers import recomputes_layers
from parsim.cost.step.hops import message_seconds
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.offload import buffered_bytes, copy_seconds, offloads
from parsim.cost.step.stage_times import backward_times, forward_times
from parsim.plan import PlanTable, Recompute
from parsim.planner.bounds.hops import Hops
from parsim.planner.bounds.parts import Parts
from parsim.sim.memory.buffers import (
    embedding_moment,
    head_moment,
    layer_moment,
    logit_values,
    placeholder_bytes,
)
from parsim.sim.memory.eager_kept import composed_bytes
from parsim.sim.step.kept_bytes import layers_kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Work(Columns):
    """Seconds and bytes of one micro-batch, (Q, C) for Q ranks of C plans.

    `forward`, `backward` of a rank's stages and `ahead_forward`, `ahead_backward` of those before
    them; `sent_ahead` and `sent_back` messages on the way to a rank and back from it, `blocked`
    those that keep it. `layer_forward` and `layer_backward` (C,) are what each layer of a stage
    takes of its pass, of the stage where that is least. `first` and `last` (C,) are forward and
    backward of stage 0, `all_forward` and `all_backward` (C,) of all stages, one after another.
    `first_kept` is what a rank keeps of its first chunk, `last_kept` of its last one, `least_kept`
    of the one with the least, `kept` of all; `moment` what a backward adds at its highest, `scores`
    (Q, C) what each further micro-batch in flight on the last stage keeps of its logits. `copied`
    and `ahead_copied` (Q, C) are copies to the host of a rank's stages and of those before it, one
    direction, at the least; `copied_most` (Q, C) of both at the most. What no plan of the table has
    is 0.0.
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
    first: Array
    last: Array
    all_forward: Array
    all_backward: Array
    first_kept: Array
    last_kept: Array
    least_kept: Array
    kept: Array
    moment: Array
    scores: Num
    copied: Num
    ahead_copied: Num
    copied_most: Num

    @classmethod
    def of(cls, job: Job, table: PlanTable, layers: LayerTable, parts: Parts) -> Work:
        """Price the ranks of a table with equal numbers of ranks that stand for all."""
        forward = forward_times(job, layers, parts.counts).time
        repeated = _repeated(table, layers, parts)
        backward, longest = (
            backward_times(job, layers, parts.counts, each).time for each in repeated
        )
        ahead, back, blocked = _messages(job, table, parts)
        kept = _kept(job, table, layers, parts)
        moment, scores = _moments(job, table, layers, parts, kept)
        least = parts.least(kept)
        copies, most = _copies(job, table, layers, parts)
        ahead_of, behind_of = np.maximum(forward, copies), np.maximum(backward, copies)
        return cls(
            forward=parts.sums(forward),
            backward=parts.sums(backward),
            ahead_forward=parts.sums_ahead(forward),
            ahead_backward=parts.sums_ahead(backward),
            sent_ahead=ahead,
            sent_back=back,
            blocked=blocked,
            layer_forward=_by_layer(parts, ahead_of),
            layer_backward=_by_layer(parts, behind_of),
            first=ahead_of[0],
            last=np.asarray(np.maximum(longest, most)[0]),
            all_forward=(parts.every * ahead_of).sum(axis=0),
            all_backward=(parts.every * behind_of).sum(axis=0),
            first_kept=np.where(parts.on_rank[:, 0] > 0, kept[0], least),
            last_kept=np.where(_last_rank(parts), kept[-1], least),
            least_kept=least,
            kept=parts.sums(kept),
            moment=moment,
            scores=scores,
            copied=_over(parts.sums, copies),
            ahead_copied=_over(parts.sums_ahead, copies),
            copied_most=_over(parts.sums, most) + _over(parts.sums_ahead, most),
        )


def _by_layer(parts: Parts, stages: Array) -> Array:
    """The least share that a layer has of its stage's seconds, (R, C) to (C,)."""
    layers = parts.counts.sum(axis=1)
    shares = np.divide(stages, layers, out=np.full_like(stages, np.inf), where=layers > 0)
    return np.asarray(shares.min(axis=0))


def _over(sums: Callable[[Array], Array], stages: Num) -> Num:
    """What stages have together; 0.0 where no plan has any."""
    return sums(stages) if isinstance(stages, np.ndarray) else stages


def _borders(job: Job) -> list[int]:
    """The distinct numbers of values that a stage may send to the next one."""
    model = job.model
    last = len(model.layers) - len(model.behind)
    ends = model.layers[max(len(model.before) - 1, 0) : last]
    return list(dict.fromkeys(layer.outputs for layer in ends))


def _messages(job: Job, table: PlanTable, parts: Parts) -> Iterator[Array]:
    """Seconds of each of the ranks' messages, at the narrowest border of the model, (Q, C) each."""
    hops = Hops.of(job, table, parts)
    pairs = [message_seconds(job, table, values) for values in _borders(job)]
    inside, across = (np.min(np.stack(each), axis=0) for each in zip(*pairs, strict=True))
    across = np.where(np.isfinite(across), across, 0.0)  # no network: no message leaves a node
    for count, leaving in (hops.ahead, hops.back, hops.blocked):
        yield (count - leaving) * inside + leaving * across


def _offloaded(table: PlanTable, layers: LayerTable, parts: Parts) -> tuple[Array, Array]:
    """(least, most) bytes of a micro-batch that each kind of stage moves to the host, (R, C) each.

    Which kinds of layer its first ones are is not looked at: of one kind both are exact.
    """
    moving = np.minimum(table.offload_layers, parts.counts.sum(axis=1))
    moved = np.stack(layers.moved)
    return moving * moved.min(axis=0), moving * moved.max(axis=0)


def _repeated(
    table: PlanTable, layers: LayerTable, parts: Parts
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


def _dropped(table: PlanTable, layers: LayerTable, parts: Parts) -> tuple[Num, Num]:
    """(least, most) bytes that such layers of each kind of stage keep less, (R, C) each, or 0.0."""
    if not recomputes_layers(table):
        return 0.0, 0.0
    some = np.minimum(table.recompute_layers, parts.counts.sum(axis=1))
    dropped = np.stack(layers.dropped)
    return some * dropped.min(axis=0), some * dropped.max(axis=0)


def _copies(job: Job, table: PlanTable, layers: LayerTable, parts: Parts) -> tuple[Num, Num]:
    """(least, most) seconds of copies to the host on each kind of stage, (R, C) each, or 0.0."""
    if not offloads(table):
        return 0.0, 0.0
    least, most = _offloaded(table, layers, parts)
    sure = copy_seconds(job, least) * (not job.system.on_cpu)  # whose backwards copy nothing
    return sure, copy_seconds(job, most)


def _kept(job: Job, table: PlanTable, layers: LayerTable, parts: Parts) -> Array:
    """Bytes that a micro-batch keeps on each kind of stage at the least, (R, C).

    Of a stack that checkpoints whole stages nothing counts. In eager PyTorch messages are received
    into buffers of their own, and what a stage received is not kept twice.
    """
    kept = layers_kept(layers, parts.counts)
    if offloads(table) and not job.system.on_cpu:
        kept = kept - _offloaded(table, layers, parts)[1]
    kept = kept - _dropped(table, layers, parts)[1]
    if job.software.checkpoints_stages:
        kept = np.where(table.recompute == Recompute.FULL, 0.0, kept)
    if not job.software.eager:
        return kept
    widest = np.max(np.stack([border_bytes(table, values) for values in _borders(job)]), axis=0)
    received = np.repeat(widest[None, :] * widened(table), len(kept), axis=0)
    received[0] = 0.0
    return np.asarray(kept + composed_bytes(job, table, parts.counts) - received)


def _moments(
    job: Job, table: PlanTable, layers: LayerTable, parts: Parts, kept: Array
) -> tuple[Array, Num]:
    """(highest moment of a backward, logits of each further micro-batch), (Q, C) each.

    Of eager PyTorch, whose moments a walk along the actions finds, what always stays.
    """
    blocks = parts.sums(parts.counts.sum(axis=1)) > 0
    on_their_way = blocks * buffered_bytes(job, table, layers)
    if job.software.eager:
        return job.software.workspace + on_their_way, 0.0
    # without what the layers that are recomputed as a whole make again, so that it never rises
    plain = replace(table, recompute_layers=np.zeros_like(table.recompute_layers))
    moment = blocks * layer_moment(job, plain, layers)
    unsure = _spread(*_offloaded(table, layers, parts)) + _spread(*_dropped(table, layers, parts))
    moment[0] = np.maximum(moment[0], embedding_moment(job, table) - kept[0] - unsure)
    logits, ends = logit_values(job, table), _last_rank(parts)
    head = head_moment(job, table) + logits * job.software.loss_kept
    moment = np.where(ends, np.maximum(moment, head), moment)
    narrow = np.min(np.stack([border_bytes(table, values) for values in _borders(job)]), axis=0)
    sent = np.where(table.pp > 1, 2.0 * narrow, 0.0) * table.common.overlap_p2p
    stays = blocks * placeholder_bytes(job, table) + job.software.workspace
    saved = job.software.loss_saved
    scores = np.where(ends, logits * saved, 0.0) if saved else 0.0
    return moment + sent + stays + on_their_way, scores


def _spread(least: Num, most: Num) -> Num:
    """What is not known of the first kind of stage, (C,); 0.0 where no plan has any."""
    spread = most - least
    return spread[0] if isinstance(spread, np.ndarray) else 0.0


def _last_rank(parts: Parts) -> Flags:
    """Which of the ranks hold the last stage, once each, (Q, C)."""
    return np.asarray(parts.on_rank[:, -1] > 0)
