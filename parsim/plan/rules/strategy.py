"""Which data-parallel strategies a plan may have on a cluster, and the error that says why not."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from parsim.cluster.hardware import Cluster
from parsim.model.model import Model
from parsim.plan.precision import precision
from parsim.plan.record import Plan
from parsim.plan.rules.branches import branch_rules
from parsim.plan.rules.layout import layout_rules
from parsim.plan.strategies import (
    AllReduce,
    AsynchronousGossip,
    AsynchronousServer,
    BranchParallel,
    DiLoCo,
    Gossip,
    Layout,
    LocalSGD,
    ParameterServer,
    SingleProcess,
    Strategy,
    of_kind,
)


def strategy_rules(plan: Plan, model: Model, cluster: Cluster) -> str | None:
    """The first thing that is wrong with a plan's strategy, or None."""
    checks = (*_shared(plan), *_OF.get(plan.strategy.name, _nothing)(plan, cluster))
    if isinstance(plan.strategy, BranchParallel):
        checks = (*checks, *branch_rules(plan, plan.strategy, model, cluster))
    if isinstance(plan.strategy, Layout) and not checks:
        checks = tuple(layout_rules(plan, plan.strategy, model, cluster))
    return next((f"strategy.{message}" for message in checks), None)


def _shared(plan: Plan) -> Iterator[str]:
    """What every strategy but the all-reduce asks of a plan."""
    strategy = plan.strategy
    if not strategy.own_program:
        return
    yield from _whole_models(plan)
    if plan.replica_microbatches is not None and not strategy.weighs_batches:
        yield (
            f"name={strategy.name} averages workers alike, which is wrong for the uneven batches "
            f"of replica_microbatches={list(plan.replica_microbatches)}; leave these out, or use "
            f"name=ddp or parameter_server, which weigh gradients by samples"
        )


def _whole_models(plan: Plan) -> Iterator[str]:
    """Workers hold whole models, or whole layers of one, and do not wait for others in a pass."""
    strategy = plan.strategy
    whole = "the whole model" if strategy.sharers == 1 else "whole layers of one model together"
    for name in ("pp", "tp", "cp", "ep", "etp", "v"):
        if getattr(plan, name) > 1:
            yield (
                f"name={strategy.name} has workers that hold {whole}, but "
                f"{name}={getattr(plan, name)}; use {name}=1, or name=ddp"
            )
    if plan.sync_batch_norm and strategy.sharers == 1:
        yield (
            f"name={strategy.name} has workers that do not wait for one another within a pass, but "
            f"sync_batch_norm=true; use sync_batch_norm=false, or name=ddp"
        )
    if plan.zero_stage:
        yield (
            f"name={strategy.name} has workers that hold {whole}, but "
            f"zero_stage={plan.zero_stage} shares it out; use zero_stage=0, or name=ddp"
        )


def _counts(strategy: Strategy, **least: int) -> Iterator[str]:
    """Options that are whole numbers with a least value."""
    for name, low in least.items():
        value = getattr(strategy, name)
        if value is not None and value < low:
            yield f"{name}={value} must be at least {low}"


def _all_reduce(plan: Plan, cluster: Cluster) -> Iterator[str]:
    strategy = of_kind(plan.strategy, AllReduce)
    if strategy.algorithm is None:
        return
    if cluster.groups:
        yield f"algorithm={strategy.algorithm} is for nodes of one kind; leave algorithm out"
    if strategy.algorithm == "hierarchical" and cluster.num_nodes == 1:
        yield "algorithm=hierarchical needs several nodes; use algorithm=ring or tree"


def _single_process(plan: Plan, cluster: Cluster) -> Iterator[str]:
    if cluster.num_nodes > 1 or cluster.groups:
        yield (
            f"name={plan.strategy.name} is one process, which has the devices of one node, but the "
            f"cluster has {cluster.num_nodes} nodes; use nodes: 1, or name=ddp"
        )


def hosts(cluster: Cluster) -> int:
    """Hosts whose memory is known: one a node."""
    systems = {group.name: group.system for group in cluster.groups} or {"": cluster.system}
    known = all(system.host_bandwidth for system in systems.values())
    return cluster.num_nodes if known else 0


def _servers(plan: Plan, cluster: Cluster) -> Iterator[str]:
    strategy = of_kind(plan.strategy, ParameterServer, AsynchronousServer)
    yield from _counts(strategy, servers=1)
    yield from _compression(plan, strategy)
    places = hosts(cluster) if strategy.on == "hosts" else plan.dp
    if not places:
        without = next(system.id for system in cluster.systems if not system.host_bandwidth)
        yield (
            f"on=hosts needs hosts, but system {without} says nothing of its own; give its "
            f"host_bandwidth (memory of a node's host, e.g. 400GB/s) in a catalog file, or use "
            f"on=devices"
        )
    elif strategy.servers is not None and strategy.servers > places:
        yield (
            f"servers={strategy.servers} on {strategy.on}, but there are {places}; use "
            f"servers={places} or fewer"
        )


def _compression(plan: Plan, strategy: ParameterServer | AsynchronousServer) -> Iterator[str]:
    """The share of bytes that is sent, and what sends it."""
    if not 0.0 < strategy.compression <= 1.0:
        yield f"compression={strategy.compression} is the share of bytes sent; allowed: 0 to 1"
    if strategy.compressor == "half" and strategy.compression != 0.5:
        yield f"compressor=half sends half of the bytes, not {strategy.compression}; use 0.5"
    width = precision(plan.precision).gathered
    if strategy.compressor == "half" and plan.reduce_precision == "same" and width == 2:
        yield (
            "compressor=half, but gradients are sent in 16 bit already (reduce_precision=same); "
            "leave one of them out"
        )
    if strategy.compressor == "top_k" and strategy.compression == 1.0:
        yield "compressor=top_k needs a share of the bytes; use compression below 1"


def _synchronous_server(plan: Plan, cluster: Cluster) -> Iterator[str]:
    strategy = of_kind(plan.strategy, ParameterServer)
    yield from _servers(plan, cluster)
    if not 0 <= strategy.backup_workers < plan.dp:
        yield (
            f"backup_workers={strategy.backup_workers} of dp={plan.dp} workers; allowed: 0 to "
            f"{plan.dp - 1}"
        )
    if strategy.node_sums:
        yield from _node_sums(strategy)
    if strategy.overlap and (strategy.compression < 1.0 or strategy.backup_workers):
        yield (
            "overlap=true pushes parts of a gradient while backward makes the others; "
            "compression and backup_workers need the whole one; leave one of them out"
        )


def _node_sums(strategy: ParameterServer) -> Iterator[str]:
    if strategy.on == "devices":
        yield "node_sums=true is for servers on hosts, not on=devices; use on=hosts"
    if strategy.compression < 1.0:
        yield (
            f"node_sums=true sends the sum of a node's gradients, and compression="
            f"{strategy.compression} packs each worker's; leave one of them out"
        )
    if strategy.backup_workers:
        yield (
            f"node_sums=true waits for all workers of a node, so that backup_workers="
            f"{strategy.backup_workers} of them cannot be dropped; leave one of them out"
        )


def _asynchronous_server(plan: Plan, cluster: Cluster) -> Iterator[str]:
    yield from _servers(plan, cluster)
    yield from _counts(plan.strategy, staleness=0, updates=10)


def _gossip(plan: Plan, cluster: Cluster) -> Iterator[str]:
    strategy = of_kind(plan.strategy, Gossip, AsynchronousGossip)
    if plan.dp < 2:
        yield f"name={strategy.name} needs peers, but dp={plan.dp}; use dp >= 2"
    if isinstance(strategy, AsynchronousGossip):
        yield from _counts(strategy, updates=10)
    elif strategy.topology == "exponential" and plan.dp & (plan.dp - 1):
        yield f"topology=exponential needs a power of two, but dp={plan.dp}; use topology=ring"


def _local(plan: Plan, cluster: Cluster) -> Iterator[str]:
    strategy = of_kind(plan.strategy, LocalSGD, DiLoCo)
    yield from _counts(strategy, every=1)
    if isinstance(strategy, DiLoCo):
        return
    yield from _counts(strategy, node_every=1, after=0, steps=1)
    if strategy.node_every and strategy.every % strategy.node_every:
        yield (
            f"node_every={strategy.node_every} does not divide every={strategy.every}; averages of "
            f"all nodes are also averages of each"
        )
    if strategy.steps is not None and strategy.steps < strategy.after + strategy.every:
        yield (
            f"steps={strategy.steps} end before the first average of weights, at step "
            f"after + every = {strategy.after + strategy.every}; use more steps"
        )


def _nothing(plan: Plan, cluster: Cluster) -> Iterator[str]:
    return iter(())


_OF: dict[str, Callable[[Plan, Cluster], Iterator[str]]] = {
    "ddp": _all_reduce,
    SingleProcess.name: _single_process,
    ParameterServer.name: _synchronous_server,
    AsynchronousServer.name: _asynchronous_server,
    Gossip.name: _gossip,
    AsynchronousGossip.name: _gossip,
    LocalSGD.name: _local,
    DiLoCo.name: _local,
}
