"""Draws the communication inside actions that nothing hides, apart by stream.

    compute  |///////////  3F0  ///////|: exposed :|
    tp                                 |---|           exchanges of activations (cp's too)
    ep                                     |--|        tokens to their experts and back
    dp                                        |----|   sharded parameters and gradients

Where in an action its collectives really are is not known: their exposed parts are put at its end,
one behind the other, as the action's own hatched part is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from parsim.cost.job import Job
from parsim.cost.stages import LayerTable, backward_times, forward_times, layer_counts
from parsim.cost.step import StepCosts, stage_cut
from parsim.plan import Plan, PlanTable, Recompute
from parsim.schedule import Kind
from parsim.sim.own_costs import exposed_parts
from parsim.timeline import Span

_ROUNDING = 1e-9
"""Parts of an action that are smaller than this share are differences of equal numbers."""


def exchanges(
    job: Job, plan: Plan, layers: LayerTable, costs: StepCosts
) -> dict[Kind, NDArray[np.float64]]:
    """Exposed seconds of tensor and context exchanges in each kind of action, (S,).

    Of a backward in two they are in I, for they are of the gradient of the inputs; what I is too
    short for stands in W, as in `own_costs.exposed_parts` (stage 0 of PyTorch has no I at all).
    """
    counts = layer_counts(job.model, stage_cut(job, PlanTable.of([plan])))
    ahead = forward_times(job, layers, counts).exposed[:, 0]
    behind = backward_times(job, layers, counts).exposed[:, 0]
    inner = np.minimum(behind, exposed_parts(costs)[0][:, 0])
    return {Kind.F: ahead, Kind.B: behind, Kind.I: inner, Kind.W: behind - inner}


def tensor_parts(
    job: Job, plan: Plan, layers: LayerTable, costs: StepCosts
) -> Mapping[str, NDArray[np.float64]]:
    """The same by the kind's name, as they are drawn."""
    return {kind.name: seconds for kind, seconds in exchanges(job, plan, layers, costs).items()}


def routed_shares(job: Job, plan: Plan, layers: LayerTable) -> Mapping[str, NDArray[np.float64]]:
    """Shares of the same that are all-to-alls of experts, (S,) by the kind's name.

    Full recomputation exchanges tokens again before gradients are exchanged.
    """
    counts = layer_counts(job.model, stage_cut(job, PlanTable.of([plan])))
    again = 1.0 + float(plan.recompute is Recompute.FULL)
    pairs = list(zip(layers.kinds, layers.recomputed, strict=True))
    routed = counts @ np.array([kind.routed.exposed[0] for kind in layers.kinds])
    ahead = counts @ np.array([kind.forward.exposed[0] for kind in layers.kinds])
    behind = counts @ np.array([kind.backward.exposed[0] + more.exposed[0] for kind, more in pairs])
    for stage, end in ((0, layers.embedding), (-1, layers.head)):
        ahead[stage] += end.forward.exposed[0]
        behind[stage] += end.backward.exposed[0]
    forward, backward = _share(routed, ahead), _share(again * routed, behind)
    return {kind.name: forward if kind is Kind.F else backward for kind in (Kind.F, *_BACKWARD)}


_BACKWARD = (Kind.B, Kind.I, Kind.W)


def _share(part: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    shares = np.divide(part, whole, out=np.zeros_like(whole), where=whole > 0)
    return np.minimum(shares, 1.0)


def inner_spans(
    actions: Iterable[Span],
    tensor: Mapping[str, NDArray[np.float64]],
    routed: Mapping[str, NDArray[np.float64]] | None = None,
) -> Iterator[Span]:
    """Spans EXCHANGE on `tp`, ALL_TO_ALL on `ep`, SHARD on `dp` for the exposed part of each."""
    for action in actions:
        least = _ROUNDING * action.duration
        begin, end = action.end - action.exposed, action.end
        border = min(begin + float(tensor[action.kind][action.stage]), end)
        if end - border <= least:
            border = end
        share = 0.0 if routed is None else float(routed[action.kind][action.stage])
        tokens = border - share * (border - begin)
        if tokens - begin > least:
            yield _part(action, "tp", "EXCHANGE", begin, tokens)
        if border - tokens > least:
            yield _part(action, "ep", "ALL_TO_ALL", tokens, border)
        if end - border > least:
            yield _part(action, "dp", "SHARD", border, end)


def _part(action: Span, stream: str, kind: str, begin: float, end: float) -> Span:
    return Span(
        rank=action.rank,
        stream=stream,
        kind=kind,
        start=begin,
        end=end,
        stage=action.stage,
        microbatch=action.microbatch,
        exposed=end - begin,
    )
