"""Jobs on one cluster, ready to run: whose node is which, and whose ranks are on which device.

    nodes            0     1     2     3     4
    job 1 (--on 0-2) H100  H100  A100                its groups in order: two fast, one slow
    job 2 (@2,4)                 A100        A100    half of node 2, after job 1's devices
    node 3 is nobody's, and taken for one of the first job's first kind

Nodes hang on the network in their order, on the first job's switches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

import numpy as np

from parsim.cluster.background import Stream
from parsim.cluster.groups import device_nodes, node_systems, rank_devices
from parsim.cluster.hardware import Cluster, NodeGroup, System
from parsim.cluster.placement import free_devices
from parsim.cluster.topology import Graph, build_graph
from parsim.cluster.topology.storage import with_storage
from parsim.cost.job import Job
from parsim.errors import InputError
from parsim.plan import Plan
from parsim.sim.contention.contention import intact, placed_graph
from parsim.sim.contention.link_use import LoadHistory
from parsim.sim.events.fabric import Fabric
from parsim.sim.events.ready_step import ReadyStep, ready_step
from parsim.sim.events.repeated_steps import RepeatedSteps, stream_kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAt:
    """A job's plan on some nodes of a shared cluster, with the streams beside its steps.

    Its groups' nodes are listed one group after another. `kinds` are the systems of those nodes,
    where they are others than the cluster's first kind. `slow` are ranks that compute so many times
    as long.
    """

    name: str
    job: Job
    plan: Plan
    nodes: tuple[int, ...]
    streams: tuple[Stream, ...] = ()
    kinds: tuple[System, ...] = ()
    slow: Mapping[int, float] = field(default_factory=dict)


class PlacedJobs:
    """The shared cluster with all jobs on it."""

    def __init__(
        self, jobs: Sequence[JobAt], system: System, failed: Sequence[str], storage: float | None
    ) -> None:
        """Place the jobs; arguments as of `jobs_together`."""
        cluster = shared_cluster(jobs, system, failed)
        graph = build_graph(cluster)
        self.graph = graph if storage is None else with_storage(graph, storage)
        self.jobs, self.ready = tuple(jobs), tuple[ReadyStep, ...]()
        taken: dict[int, int] = {}
        for job in jobs:
            devices = _devices(job, cluster, taken)
            self.ready = (*self.ready, _ready(job, self.graph, devices, cluster))

    def fabric(self, chosen: Sequence[int], history: LoadHistory | None = None) -> Fabric:
        """Links that the chosen jobs use; `history` takes their loads."""
        watch = None if history is None else lambda now, loads: history.append((now, loads))
        return Fabric([self.ready[job].sent for job in chosen], self.graph, watch)

    def start(self, fabric: Fabric, chosen: Sequence[int]) -> list[RepeatedSteps]:
        """Begin the chosen jobs' first steps now; periodic streams are left to the caller."""
        running = [
            RepeatedSteps(fabric, self.ready[job], number, self.jobs[job].streams)
            for number, job in enumerate(chosen)
        ]
        for steps in running:
            steps.start()
        return running

    def run(self, fabric: Fabric, chosen: Sequence[int], count: int) -> list[RepeatedSteps]:
        """Steps of the chosen jobs until each has ended so many."""
        running = self.start(fabric, chosen)
        fabric.env.run(until=fabric.env.all_of([steps.until(count) for steps in running]))
        fabric.links.settle()
        return running

    def alone(self, job: int) -> float:
        """Seconds of a job's step with no other job and no periodic stream."""
        return self.run(self.fabric([job]), [job], 1)[0].ended[0].seconds


def shared_cluster(jobs: Sequence[JobAt], system: System, failed: Sequence[str]) -> Cluster:
    """All nodes up to the last one that a job takes, each of its job's kind.

    Raises:
        InputError: as many nodes as a job has are not listed for it, or a node is of two kinds.
    """
    systems: dict[int, tuple[System, str]] = {}
    for job in jobs:
        _check_nodes(job)
        for node, kind in zip(job.nodes, job.kinds or (system,) * len(job.nodes), strict=True):
            before, name = systems.setdefault(node, (kind, job.name))
            if before != kind:
                raise InputError(
                    f"--beside: node {node} is of {before.id} for {name} and of {kind.id} for "
                    f"{job.name}; jobs share a node of one kind: list other nodes, with --on or "
                    f"behind the file, e.g. other.yaml@4-7"
                )
    nodes = [systems[node][0] if node in systems else system for node in range(max(systems) + 1)]
    if all(kind == system for kind in nodes):
        return Cluster(system=system, num_nodes=len(nodes), failed=tuple(failed))
    runs = [list(run) for _, run in groupby(nodes)]
    groups = tuple(
        NodeGroup(name=str(index), system=run[0], num_nodes=len(run))
        for index, run in enumerate(runs)
    )
    return Cluster(system=system, num_nodes=len(nodes), failed=tuple(failed), groups=groups)


def _check_nodes(job: JobAt) -> None:
    cluster = job.job.cluster
    if len(job.nodes) != cluster.num_nodes:
        groups = ", ".join(f"{group.num_nodes} {group.name}" for group in cluster.groups)
        count = f"{cluster.num_nodes}{groups and f' ({groups})'}"
        raise InputError(
            f"--beside: {job.name} has cluster.nodes={count}, "
            f"and {len(job.nodes)} nodes are listed for it: {', '.join(map(str, job.nodes))}; "
            f"list {cluster.num_nodes}"
        )


def _devices(job: JobAt, cluster: Cluster, taken: dict[int, int]) -> tuple[int, ...]:
    """The device of each rank of a job; `taken` counts the devices of each node in use."""
    sizes = [system.devices_per_node for system in node_systems(cluster)]
    counts = [system.devices_per_node for system in node_systems(job.job.cluster)]
    wanted = list(zip(job.nodes, counts, strict=True))
    devices = free_devices(wanted, sizes, taken, job.name)
    for node, count in wanted:
        taken[node] = taken.get(node, 0) + count
    order = rank_devices(job.job.cluster, job.plan.node_order).tolist()
    return tuple(devices[index] for index in order)


def _ready(job: JobAt, graph: Graph, devices: Sequence[int], cluster: Cluster) -> ReadyStep:
    """A job's step with its ranks on devices of the shared graph."""
    with_ranks = replace(graph, devices=np.array(devices, dtype=np.int64))
    whole = intact(job.job, job.plan) or placed_graph(job.job, job.plan)
    ready = ready_step(job.job, job.plan, with_ranks, whole, job.slow)
    kinds = stream_kinds(graph, job.streams, sorted(devices), device_nodes(cluster))
    return replace(ready, sent={**ready.sent, **kinds})
