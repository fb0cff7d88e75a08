"""The best cut for stages whose replicas are given, and parsim's prices that it is made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from parsim.arrays import Array, Index
from parsim.cost.job import Job
from parsim.cost.step.cuts import single_layers
from parsim.errors import NoFeasiblePlan
from parsim.partition.hierarchy import PartitionStage
from parsim.partition.judge import Judge, Stages
from parsim.partition.layer_graph import LayerGraph, LayerNode
from parsim.partition.levels import Level, Options, rate_between
from parsim.partition.simulated import climb, moved_cuts
from parsim.partition.states import States
from parsim.plan import Plan, precision


class Share(NamedTuple):
    """What a stage has: so many replicas of `width` devices, and the layers as these price them."""

    replicas: int
    states: States
    width: int = 1

    @property
    def devices(self) -> int:
        """All devices of the stage."""
        return self.replicas * self.width


def cut_for(
    states: States, levels: Sequence[Level], replicas: Sequence[int], *, late: bool = False
) -> Stages:
    """The stages with these replicas whose slowest one is fastest, in front of it the message.

    From `fastest_by_formula` on cuts move as long as a run takes less time, which knows how long
    messages keep a pipeline waiting that has few micro-batches on their way. With `late` replicas
    update a round late, and do not wait for the sum of their gradients.

    Raises:
        NoFeasiblePlan: there are fewer layers than stages.
    """
    count = len(states)
    if count < len(replicas):
        raise NoFeasiblePlan(f"{len(replicas)} stages need as many layers, but there are {count}")
    judge = Judge(states, levels, Options(), late=late)
    formula = fastest_by_formula(levels, [Share(each, states) for each in replicas])
    return climb(judge, formula, moved_cuts)[0]


def fastest_by_formula(levels: Sequence[Level], shares: Sequence[Share]) -> Stages:
    """The stages on these shares of the devices whose slowest one, or message, is fastest.

    (C + 2 (r - 1) / r W / B) / r of a stage of r replicas; (t'/t + t/t') O / B / min(r, r') of the
    messages at a border, forward and back, where the fractions count up: each of t' receiving ranks
    gets the whole border from one of t. Every cut of a chain is tried, by dynamic programming over
    its states.
    """
    count = len(shares[0].states)
    best = np.full(count + 1, np.inf)  # of all stages so far, by the state behind them
    best[0] = 0.0
    cuts: list[Index] = []
    for number in range(len(shares)):
        slowest = np.maximum(best[:, None], _stage(levels, shares, number))
        cuts.append(slowest.argmin(axis=0))
        best = slowest.min(axis=0)
    ends = [count]
    for cut in reversed(cuts[1:]):
        ends.append(int(cut[ends[-1]]))
    bounds = [0, *reversed(ends)]
    triples = zip(bounds, bounds[1:], shares, strict=False)
    return tuple(PartitionStage(first, end, share.replicas) for first, end, share in triples)


def _stage(levels: Sequence[Level], shares: Sequence[Share], number: int) -> Array:
    """Seconds of stage `number` over states first up to end, (first, end); inf if it is empty."""
    share = shares[number]
    states, each = share.states, share.replicas
    count, before = len(states), sum(other.devices for other in shares[:number])
    total = np.concatenate([[0.0], states.seconds])
    weights = np.concatenate([[0.0], states.parameters])
    rate = rate_between(levels, before, before + share.devices - 1)
    sent = 2.0 * (each - 1) / each * (weights[None, :] - weights[:, None]) / rate
    seconds = (total[None, :] - total[:, None] + sent) / each
    if number:
        ahead = shares[number - 1]
        rate = rate_between(levels, before - ahead.devices, before) * min(each, ahead.replicas)
        message = _copies(share.width, ahead.width) * states.output / rate
        seconds = np.maximum(seconds, np.concatenate([[0.0], message])[:, None])
    first, end = np.indices((count + 1, count + 1))
    return np.where(first < end, seconds, np.inf)


def _copies(width: int, other: int) -> float:
    """Copies of a border that a rank sends there and back between replicas of so many ranks."""
    return float(-(-width // other) + -(-other // width))


def priced_graph(job: Job, plan: Plan, sent: float = 1.0) -> LayerGraph:
    """The chain of a job's layers as a plan prices them; embedding and head count to its ends.

    Bytes of weights are those that a gradient's reduction sends, times `sent`: the share of
    micro-batches that it comes behind.
    """
    single = replace(plan, stages=None, stage_layers=None, pp=1, v=1, schedule="1f1b", actions=None)
    each, size = single_layers(job, single), 4.0 * sent
    if plan.reduce_precision != "fp32":
        size = float(precision(plan.precision).parameter) * sent
    layers = tuple(
        LayerNode(
            name=f"layer{number}",
            description=job.model.blocks[number].name,
            seconds=float(each.seconds[number]),
            activations=float(each.sent[number]),
            parameters=float(each.parameters[number]) * size,
        )
        for number in range(job.model.num_layers)
    )
    chain = tuple((number, number + 1) for number in range(len(layers) - 1))
    return LayerGraph(layers=layers, edges=chain)


def levels_of(job: Job) -> tuple[Level, ...]:
    """Devices of a node at the rate between them, then nodes at a node's rate to the network."""
    system, nodes = job.system, job.cluster.num_nodes
    inner = Level(system.devices_per_node, system.intra.rate)
    if nodes == 1 or system.network is None:
        return (inner,)
    network = system.network
    rate = network.nics_per_node * network.nic_bandwidth * network.efficiency
    return (inner, Level(nodes, rate))
