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
from parsim.cluster.hardware import Cluster, NodeGroup, System
from parsim.cluster.mixed import device_nodes, node_systems, rank_devices
from parsim.cluster.node_list import free_devices
from parsim.cluster.topology import Graph, build_graph
from parsim.cluster.topology.storage import with_storage
from parsim.cost.job import Job
from parsim.errors import InputError
from parsim.plan import Plan
from parsim.sim.contention import any_ready, intact, placed_graph
from parsim.sim.fabric import Fabric
from parsim.sim.fair_share import Array
from parsim.sim.repeated_steps import AnyReady, RepeatedSteps, stream_kinds

Seen = list[tuple[float, Array]]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAt:
    """A job's plan on some nodes of a shared cluster, with the streams beside its steps.

    Its groups' nodes are listed one group after another. `kinds` are those whole nodes, where they
    are others than the cluster's first kind. `slow` are ranks that compute so many times as long.
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
        self.jobs, self.ready = tuple(jobs), tuple[AnyReady, ...]()
        taken: dict[int, int] = {}
        for one in jobs:
            devices = _devices(one, cluster, taken)
            self.ready = (*self.ready, _ready(one, self.graph, devices, cluster))

    def fabric(self, chosen: Sequence[int], seen: Seen | None = None) -> Fabric:
        """Links that the chosen jobs use; `seen` takes their loads."""
        watch = None if seen is None else lambda now, loads: seen.append((now, loads))
        return Fabric([self.ready[place].sent for place in chosen], self.graph, watch)

    def start(self, fabric: Fabric, chosen: Sequence[int]) -> list[RepeatedSteps]:
        """Begin the chosen jobs' first steps now; periodic streams are left to the caller."""
        running = [
            RepeatedSteps(fabric, self.ready[place], number, self.jobs[place].streams)
            for number, place in enumerate(chosen)
        ]
        for one in running:
            one.start()
        return running

    def run(self, fabric: Fabric, chosen: Sequence[int], count: int) -> list[RepeatedSteps]:
        """Steps of the chosen jobs until each has ended so many."""
        running = self.start(fabric, chosen)
        fabric.env.run(until=fabric.env.all_of([one.until(count) for one in running]))
        fabric.links.settle()
        return running

    def alone(self, place: int) -> float:
        """Seconds of a job's step with no other job and no periodic stream."""
        return self.run(self.fabric([place]), [place], 1)[0].ended[0].seconds


def shared_cluster(jobs: Sequence[JobAt], system: System, failed: Sequence[str]) -> Cluster:
    """All nodes up to the last one that a job takes, each of its job's kind.

    Raises:
        InputError: as many nodes as a job has are not listed for it, or a node is of two kinds.
    """
    kinds: dict[int, tuple[System, str]] = {}
    for one in jobs:
        _check_nodes(one)
        for node, kind in zip(one.nodes, one.kinds or (system,) * len(one.nodes), strict=True):
            before, name = kinds.setdefault(node, (kind, one.name))
            if before != kind:
                raise InputError(
                    f"--beside: node {node} is of {before.id} for {name} and of {kind.id} for "
                    f"{one.name}; jobs share a node of one kind: list other nodes, with --on or "
                    f"behind the file, e.g. other.yaml@4-7"
                )
    nodes = [kinds[node][0] if node in kinds else system for node in range(max(kinds) + 1)]
    if all(one == system for one in nodes):
        return Cluster(system=system, num_nodes=len(nodes), failed=tuple(failed))
    runs = [list(run) for _, run in groupby(nodes)]
    groups = tuple(
        NodeGroup(name=str(place), system=run[0], num_nodes=len(run))
        for place, run in enumerate(runs)
    )
    return Cluster(system=system, num_nodes=len(nodes), failed=tuple(failed), groups=groups)


def _check_nodes(one: JobAt) -> None:
    cluster = one.job.cluster
    if len(one.nodes) != cluster.num_nodes:
        said = ", ".join(f"{group.num_nodes} {group.name}" for group in cluster.groups)
        raise InputError(
            f"--beside: {one.name} has cluster.nodes={cluster.num_nodes}{said and f' ({said})'}, "
            f"and {len(one.nodes)} nodes are listed for it: {', '.join(map(str, one.nodes))}; "
            f"list {cluster.num_nodes}"
        )


def _devices(one: JobAt, cluster: Cluster, taken: dict[int, int]) -> tuple[int, ...]:
    """The device of each rank of a job; `taken` counts the devices of each node in use."""
    own = one.job.cluster
    sizes = [each.devices_per_node for each in node_systems(cluster)]
    counts = [each.devices_per_node for each in node_systems(own)]
    wanted = list(zip(one.nodes, counts, strict=True))
    found = free_devices(wanted, sizes, taken, one.name)
    for node, each in wanted:
        taken[node] = taken.get(node, 0) + each
    return tuple(found[place] for place in rank_devices(own, one.plan.node_order).tolist())


def _ready(one: JobAt, graph: Graph, devices: Sequence[int], cluster: Cluster) -> AnyReady:
    """A job's step with its ranks on devices of the shared graph."""
    own = replace(graph, devices=np.array(devices, dtype=np.int64))
    whole = intact(one.job, one.plan) or placed_graph(one.job, one.plan)
    ready = any_ready(one.job, one.plan, own, whole, one.slow)
    kinds = stream_kinds(graph, one.streams, sorted(devices), device_nodes(cluster))
    return replace(ready, sent={**ready.sent, **kinds})
