"""Draws the communication inside actions that nothing hides, apart by stream.

    compute  |///////////  3F0  ///////|: exposed :|
    tp                                 |---|           exchanges of activations (cp's too)
    dp                                     |-------|   sharded parameters and gradients

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
from parsim.plan import Plan, PlanTable
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


def inner_spans(
    actions: Iterable[Span], tensor: Mapping[str, NDArray[np.float64]]
) -> Iterator[Span]:
    """Spans EXCHANGE on `tp` and SHARD on `dp` for the exposed part of each action."""
    for action in actions:
        least = _ROUNDING * action.duration
        begin, end = action.end - action.exposed, action.end
        border = min(begin + float(tensor[action.kind][action.stage]), end)
        if end - border <= least:
            border = end
        if border - begin > least:
            yield _part(action, "tp", "EXCHANGE", begin, border)
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
