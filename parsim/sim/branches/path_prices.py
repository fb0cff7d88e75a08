"""Seconds and bytes of a model's paths, from those of a whole model on one device.

    seconds of a path = its share of all paths' seconds, of those that one device takes for them all

so that a model whose paths are all on one device takes, and holds, what one device does.

Leaves out: that kernels of paths on one device might run at once there (one stream runs them all).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from parsim.arrays import Array
from parsim.cost.collective.collectives import p2p_time
from parsim.cost.layer.kept.activations import kept_bytes, kept_policy
from parsim.cost.layer.kept.operator_tensors import border_bytes
from parsim.cost.layer.layers import LayerCoster
from parsim.cost.layer.passes import LayerCost
from parsim.cost.step.stage_passes import raced
from parsim.model.layer import Layer
from parsim.model.operators import Loss
from parsim.model.paths import Path
from parsim.sim.recurrence.evaluate import Evaluation


@dataclass(frozen=True, slots=True, kw_only=True)
class PathPrices:
    """Seconds of a micro-batch's passes on each path, bytes of its output and of what it keeps.

    `forward` and `backward` are the seconds, `leaves` the bytes of the output, `kept` those that
    stay for backward, `parameters` the number of them. `logits` are the values of a sample that its
    losses choose among, `message` the seconds of its output to another device: of its node, where a
    group of devices fits one.
    """

    forward: Array
    backward: Array
    leaves: Array
    kept: Array
    parameters: Array
    logits: Array
    message: Array

    @classmethod
    def of(cls, evaluation: Evaluation, paths: tuple[Path, ...], devices: int) -> PathPrices:
        """Price the paths of a plan of whole models, each of which so many devices will hold."""
        step = evaluation.step
        job, table = step.job, step.pricing.table
        ahead, back = _seconds(evaluation, paths)
        policy = kept_policy(job.software)
        leaves = np.array([float(border_bytes(table, path.leaves)[0]) for path in paths])
        wide = devices > job.system.devices_per_node
        return cls(
            forward=ahead * (float(step.costs.forward[0, 0]) / ahead.sum()),
            backward=back * (float(step.costs.backward[0, 0]) / back.sum()),
            leaves=leaves,
            kept=np.array([float(kept_bytes(path.layer, table, policy)[0]) for path in paths]),
            parameters=np.array([float(path.layer.parameters) for path in paths]),
            logits=np.array([_logits(path.layer) for path in paths]),
            message=p2p_time(job.system, leaves, crosses=wide, sharing=1.0),
        )


def _seconds(evaluation: Evaluation, paths: tuple[Path, ...]) -> tuple[Array, Array]:
    """Forward and backward of each path by itself, while device and host race over it."""
    step = evaluation.step
    job, layers = step.job, step.pricing.layers(0)
    coster = LayerCoster(job, step.pricing.table)
    known = {layer: _cost(coster, layer) for layer in dict.fromkeys(path.layer for path in paths)}
    seconds = [
        [float(raced(job, layers, part)[0]) for part in (cost.forward, cost.backward)]
        for cost in (known[path.layer] for path in paths)
    ]
    ahead, back = np.array(seconds).reshape(-1, 2).T
    return ahead, back


def _cost(coster: LayerCoster, layer: Layer) -> LayerCost:
    return coster.cost(layer) if layer.operators else LayerCost.zero(len(coster.table))


def _logits(layer: Layer) -> float:
    """Values of a sample among which the losses of a layer choose."""
    return float(sum(op.tokens * op.vocab_size for op in layer.operators if isinstance(op, Loss)))
