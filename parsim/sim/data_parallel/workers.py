"""What each worker of a data-parallel plan computes and holds: that of the plan's DDP step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from parsim.arrays import Array, Index, sorted_values
from parsim.cluster.groups import device_nodes, in_groups, level_devices, node_systems
from parsim.cluster.hardware import System
from parsim.cost.data.buckets import reduced_bytes
from parsim.cost.data.update import clipped_bytes, clipping_time, updates_at_once
from parsim.cost.job import Job
from parsim.cost.kernel.kernels import ACCUMULATE, memory_time
from parsim.cost.layer.interference import speed_beside
from parsim.plan import Plan, PlanTable, precision
from parsim.sim.recurrence.evaluate import Evaluation

MASTER_BYTES = 4.0
"""Bytes of a weight, a gradient's sum or an optimizer's state that is averaged or updated: fp32."""
DIVIDED = 2 * MASTER_BYTES
"""Bytes a value of a pass that divides a sum by how many there are."""
MOST_PASSES = 16
"""Micro-batches that are simulated one by one; more are one forward and one backward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """The workers of a plan, and tier B's answer for its whole models with all-reduced gradients.

    `node` (n,) is each worker's node, `class_of` (n,) the class of the whole model of which it
    holds all, or a part: it then has an equal share of the model's seconds, as the mean of its
    sharers does.
    """

    evaluation: Evaluation
    plan: Plan
    node: Index
    class_of: Index

    @classmethod
    def of(cls, evaluation: Evaluation, plan: Plan) -> Workers:
        """Place the workers of a plan."""
        cluster = in_groups(evaluation.step.job.cluster)
        node = device_nodes(cluster)[level_devices(cluster, plan.node_order)]
        return cls(
            evaluation=evaluation,
            plan=plan,
            node=node,
            class_of=np.repeat(evaluation.step.classes.class_of, plan.strategy.sharers),
        )

    @property
    def job(self) -> Job:
        """Model, cluster, software."""
        return self.evaluation.step.job

    @property
    def count(self) -> int:
        """How many workers there are, n."""
        return self.plan.dp

    @property
    def systems(self) -> tuple[System, ...]:
        """The kind of each node."""
        return node_systems(self.job.cluster)

    @property
    def nodes(self) -> list[list[int]]:
        """The workers of each node that has any."""
        return [np.flatnonzero(self.node == number).tolist() for number in sorted_values(self.node)]

    @property
    def passes(self) -> int:
        """Forwards that are simulated one by one."""
        counts = self.plan.microbatches
        return counts[0] if len(set(counts)) == 1 and counts[0] <= MOST_PASSES else 1

    @property
    def stands_for(self) -> Array:
        """How many micro-batches a simulated pass of each replica stands for."""
        return np.array(self.plan.microbatches, dtype=np.float64) / self.passes

    def _per_pass(self, seconds: Array) -> Array:
        """Seconds of one of the simulated passes on each worker, from those of a micro-batch."""
        shared = seconds[0, self.class_of] / self.plan.strategy.sharers
        return np.asarray(shared * self.stands_for)

    @property
    def forward(self) -> Array:
        """Seconds of a pass's forward, (n,)."""
        return self._per_pass(self.evaluation.step.costs.forward)

    @property
    def backward(self) -> Array:
        """Seconds of a pass's backward, (n,)."""
        return self._per_pass(self.evaluation.step.costs.backward)

    @property
    def compute(self) -> Array:
        """Seconds of a step's forwards and backwards, (n,)."""
        return (self.forward + self.backward) * self.passes

    def slowed_beside(self, exchange: Array) -> Array:
        """How many times as long workers compute beside an exchange of so many seconds, (n,).

        min(1 / v, 1 + (1 - v) E / C): compute of C seconds makes v seconds of progress in each of
        the exchange's E (`cost/layer/interference.py`, or the measured `message_interference`).
        """
        left = self.speed_beside_messages(exchange)
        lost = (1.0 - left) * exchange / np.maximum(self.compute, 1e-30)
        return np.asarray(np.minimum(1.0 / np.maximum(left, 1e-30), 1.0 + lost))

    def speed_beside_messages(self, exchange: Array) -> Array:
        """Share of its speed that each worker keeps while the weights go out in so long, (n,)."""
        layers = self.evaluation.step.pricing.layers(0).kinds
        busbw = self.weight_bytes / np.maximum(exchange, 1e-30)
        left = np.empty_like(busbw)
        for node in sorted_values(self.node):
            here, system = self.node == node, self.systems[node]
            left[here] = speed_beside(system, busbw[here], layers, messages=True)
        return left

    @property
    def optimizer(self) -> Array:
        """Seconds in which each worker clips its gradient and updates all parameters, (n,)."""
        whole = self.evaluation.step.costs.optimizer[0, self.class_of]
        return np.asarray((whole + self.clipping) / self.plan.strategy.sharers)

    @property
    def optimizer_alone(self) -> Array:
        """Seconds of the same on each worker while no other one updates, (n,)."""
        whole = self.evaluation.step.costs.optimizer[0, self.class_of] / self.at_once
        clipping = self._clipping(np.ones(self.count))
        return np.asarray((whole + clipping) / self.plan.strategy.sharers)

    @property
    def clipping(self) -> Array:
        """Seconds in which each worker takes the norm of its own gradient and clips it, (n,).

        Nothing where these bytes are among those of the update.
        """
        return self._clipping(self.at_once)

    def _clipping(self, slowdown: Array) -> Array:
        """Norm and clipping in seconds if each worker's writes take so many times longer, (n,)."""
        compute = precision(self.plan.precision).compute
        if not clipped_bytes(self.job, compute):
            return np.zeros(self.count)
        rows = zip(self.node.tolist(), slowdown.tolist(), strict=True)
        seconds = [
            clipping_time(self.job, self.systems[node], self.parameters, compute, slower)
            for node, slower in rows
        ]
        return np.array(seconds, dtype=float)

    @property
    def at_once(self) -> Array:
        """How many times longer each worker's update is than if it made it alone, (n,)."""
        ranks = np.bincount(self.node)[self.node]
        systems = [self.systems[node] for node in self.node.tolist()]
        rows = zip(systems, ranks, strict=True)
        return np.array([float(updates_at_once(system, each)) for system, each in rows])

    def passes_over(self, values: float, width: float) -> Array:
        """Seconds in which each worker moves `width` bytes for each of so many values, (n,).

        All do at once, as where they sum or divide averages: ranks that share a memory lose to each
        other.
        """
        devices = [self.systems[node].device for node in self.node.tolist()]
        alone = [float(memory_time(device, width * values, 0, ACCUMULATE)) for device in devices]
        return np.asarray(np.array(alone) * self.at_once)

    @property
    def parameters(self) -> float:
        """Parameters of the model."""
        return float(self.evaluation.step.costs.trained[0, 0])

    @property
    def gradient_width(self) -> float:
        """Bytes of a gradient's value as it is sent."""
        return float(reduced_bytes(PlanTable.of([self.plan])))

    @property
    def gradient_bytes(self) -> float:
        """Bytes of a gradient as it is sent."""
        return self.parameters * self.gradient_width

    @property
    def weight_bytes(self) -> float:
        """Bytes of the weights as they are sent."""
        return self.parameters * precision(self.plan.precision).parameter

    @property
    def all_reduce(self) -> float:
        """Seconds of an all-reduce of all gradients with nothing beside it."""
        costs = self.evaluation.step.costs
        return float((costs.buckets * costs.bucket_time).max())

    @property
    def straggler(self) -> float:
        """The share by which steps grow in which all workers wait for one another."""
        return float(self.evaluation.step.costs.straggler[0])
