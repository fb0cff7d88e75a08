"""parsim's own prices as a graph of layers: what a partition is made from without a profile."""

from __future__ import annotations

from dataclasses import replace

from parsim.cost.job import Job
from parsim.cost.step.single_layers import single_layers
from parsim.partition.hierarchy import Level
from parsim.partition.layer_graph import LayerGraph, LayerNode
from parsim.plan import Plan
from parsim.plan.precision import precision


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
    inner = Level(system.devices_per_node, system.intra.bandwidth * system.intra.efficiency)
    if nodes == 1 or system.network is None:
        return (inner,)
    network = system.network
    rate = network.nics_per_node * network.nic_bandwidth * network.efficiency
    return (inner, Level(nodes, rate))
