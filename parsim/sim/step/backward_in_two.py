"""Seconds of a backward in two actions: gradients of the inputs, and those of the weights behind.

    B  | recomputation | attention | norms | products x 2 |
    I  | recomputation | attention | norms | products x 1 |     W  | products x 1 | calls |

What a whole backward takes is divided so, for whoever steps through a schedule and for its bound.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from parsim.arrays import Array, ratio
from parsim.cost.job import Job
from parsim.cost.layer.passes import Pass
from parsim.cost.layer.split_calls import calls_of
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.stage_passes import raced, repeated_pass, stage_pass
from parsim.cost.step.stages import layer_counts
from parsim.cost.step.step import deeper_pass, stage_cut
from parsim.plan import PlanTable
from parsim.sim.step.kept_bytes import splits_like_torch


class InTwo(NamedTuple):
    """A backward in two: seconds of I and of W of each stage, (S, B).

    `recomputed` and `exposed` are what recomputation and its collectives take more of I than they
    take of a whole backward.
    """

    inner: Array
    weight: Array
    recomputed: Array
    exposed: Array


def in_two(job: Job, table: PlanTable, layers: LayerTable, backward: Array) -> InTwo:
    """A backward in two actions.

    W is the weight gradients of the matrix products and their accumulation; I = B - W:
    recomputation, attention and norms are in I.
    Each races with the host that launches it, so that the two may be longer than a whole backward,
    in which one makes up for the other, and the stack's calls for each group of parameters come on
    top (`cost/layer/split_calls.py`); sharded collectives are shared out in proportion. On stage
    0 all is W in PyTorch's runtime (`splits_like_torch`): nobody needs the gradient of the model's
    input.

    Source: arXiv 2401.10241, section 2, splits the backward there; `LayerCoster` prices the parts.
    Leaves out: that a whole backward beside ones in two is not launched in two.
    """
    counts, deeper = layer_counts(job.model, stage_cut(job, table)), deeper_pass(job, table, layers)
    weights, once, again = parts_of_backward(layers, counts, deeper)
    halves = _Halves.of(job, table, layers, counts, weights)
    plain, whole = (raced(job, layers, each, layers.calls) for each in (once, once.plus(again)))
    plain_inner, inner = (halves.inner(each) for each in (once, once.plus(again)))
    longer = ratio(backward, whole + layers.pause)
    more = longer * ((inner - plain_inner) - (whole - plain))
    inner, weight = longer * (inner + layers.pause), longer * halves.weight()
    if splits_like_torch(job, table):
        inner[0], weight[0], more[0] = 0.0, backward[0], 0.0
    collectives = more * again.exposed_share
    return InTwo(inner, weight, recomputed=more - collectives, exposed=collectives)


def least_in_two(
    job: Job, table: PlanTable, layers: LayerTable, counts: Array, deeper: Pass | None
) -> tuple[Array, Array]:
    """(I, W) of each stage at the least, (S, B), whatever collectives and copies beside them take.

    Arguments are those of `parts_of_backward`. Together they are never shorter than a backward.
    """
    weights, once, again = parts_of_backward(layers, counts, deeper)
    halves = _Halves.of(job, table, layers, counts, weights)
    inner, weight = halves.inner(once.plus(again)) + layers.pause, halves.weight()
    if splits_like_torch(job, table):
        whole = raced(job, layers, once.plus(again), layers.calls) + layers.pause
        inner[0], weight[0] = 0.0, whole[0]
    return inner, weight


@dataclass(frozen=True, slots=True, kw_only=True)
class _Halves:
    """The halves of each stage's backward with the host's calls for groups of parameters, (S, B).

    `weights` is the part of a backward that W takes over, `calls` what it takes more there;
    `beside` are the host's seconds of all groups, in I and in W.
    """

    job: Job
    layers: LayerTable
    weights: Pass
    calls: Pass
    beside: tuple[Array, Array]

    @classmethod
    def of(
        cls, job: Job, table: PlanTable, layers: LayerTable, counts: Array, weights: Pass
    ) -> _Halves:
        nothing = Pass.zero(len(table))
        kinds = [calls_of(job, table, layer) for layer in job.model.kinds]
        last = nothing
        for layer in job.model.behind:
            last = last.plus(calls_of(job, table, layer))
        calls = stage_pass(kinds, counts, nothing, last)
        ahead, behind = (np.asarray(calls.launches * each) for each in job.software.split_cost)
        none = replace(calls, launches=np.zeros_like(calls.launches))
        return cls(job=job, layers=layers, weights=weights, calls=none, beside=(ahead, behind))

    def inner(self, backward: Pass) -> Array:
        """Seconds of I of a backward."""
        calls = self.layers.calls + self.beside[0]
        return raced(self.job, self.layers, backward.less(self.weights), calls)

    def weight(self) -> Array:
        """Seconds of W."""
        return raced(self.job, self.layers, self.weights.plus(self.calls), self.beside[1])


def parts_of_backward(
    layers: LayerTable, counts: Array, deeper: Pass | None
) -> tuple[Pass, Pass, Pass]:
    """Split each stage's backward: weight gradients, one that repeats nothing, the repeat.

    `counts` are the stages' layers of each kind, (S, K) or (S, K, B); `deeper` what they repeat
    more for layers recomputed as a whole.
    """
    nothing = Pass.zero(len(layers.slowest_host))
    weights = [kind.weights for kind in layers.kinds]
    kinds = [kind.backward for kind in layers.kinds]
    return (
        stage_pass(weights, counts, nothing, layers.behind.weights),
        stage_pass(kinds, counts, layers.before.backward, layers.behind.backward),
        repeated_pass(layers, counts, deeper),
    )
