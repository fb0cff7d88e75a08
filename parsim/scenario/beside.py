"""Scenarios on one cluster: whose links they are, and which nodes each takes.

A kind of node belongs to the first scenario that has it: jobs on nodes of one system take its links
and interfaces, with devices of their own. The switches are the first scenario's. Where a scenario
has several kinds of one system (half of the nodes with slower interfaces), the names of the groups
tell them apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from parsim.cluster.groups import in_groups
from parsim.cluster.hardware import Network, NodeGroup, System
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.errors import InputError
from parsim.scenario.record import Scenario
from parsim.sim.contention.placed_jobs import JobAt

Nodes = tuple[int, ...] | None


def shared_jobs(placed: Sequence[tuple[Scenario, Nodes]]) -> tuple[tuple[JobAt, ...], System]:
    """The jobs of scenarios on shared links, and the first one's whole nodes.

    A scenario without nodes takes the first ones that none before it has.

    Raises:
        InputError: nodes that no network joins, kinds of node that nothing tells apart, parts that
            fail in a scenario but the first, or no plan.
    """
    first = placed[0][0]
    kinds, jobs = _Kinds(first), list[JobAt]()
    named = _names([scenario.name for scenario, _ in placed])
    for (scenario, nodes), name in zip(placed, named, strict=True):
        _check_failed(scenario, first)
        if nodes is None:
            taken = [job.nodes for job in jobs]
            nodes = free_nodes(taken, scenario.job.cluster.num_nodes)
        jobs.append(_job_at(scenario, nodes, kinds, name))
    return tuple(jobs), kinds.switches


def _check_failed(scenario: Scenario, first: Scenario) -> None:
    failed = scenario.job.cluster.failed
    if failed and scenario is not first:
        raise InputError(
            f"--beside: {scenario.path} has cluster.failed={list(failed)}, "
            f"which belongs to the shared cluster; write it in {first.path}"
        )


def _job_at(scenario: Scenario, nodes: tuple[int, ...], kinds: _Kinds, name: str) -> JobAt:
    """A scenario's job on nodes of the shared cluster, each of a kind that some scenario has."""
    groups = in_groups(scenario.job.cluster).groups
    whole = [kinds.of(scenario, group) for group in groups]
    job = replace(scenario.job, cluster=replace(scenario.job.cluster, failed=()))
    counts = [group.num_nodes for group in groups]
    return JobAt(
        name=name,
        job=job if scenario is kinds.first else _on_links(job, whole),
        plan=scenario.fixed_plan(),
        nodes=nodes,
        streams=scenario.background.streams,
        kinds=tuple(kind for kind, n in zip(whole, counts, strict=True) for _ in range(n)),
        slow=dict(scenario.jitter.slow_ranks),
    )


class _Kinds:
    """Whole nodes by the scenario that had them first."""

    def __init__(self, first: Scenario) -> None:
        group = in_groups(first.job.cluster).groups[0]
        self.first, self.switches = first, whole_node(first, group.system)
        self.known: list[tuple[Scenario, str, System]] = []

    def of(self, scenario: Scenario, group: NodeGroup) -> System:
        """The kind of a scenario's group of nodes."""
        system = group.system
        theirs = [
            (name, kind)
            for owner, name, kind in self.known
            if kind.id == system.id and owner is not scenario
        ]
        distinct: list[System] = []
        for _, kind in theirs:
            if kind not in distinct:
                distinct.append(kind)
        if not distinct:
            shared = self._new(scenario, system)
        elif len(distinct) == 1 and not _several(scenario, system.id):
            shared = distinct[0]
        else:
            shared = self._by_name(scenario, group, theirs)
        self.known.append((scenario, group.name, shared))
        return shared

    def _new(self, scenario: Scenario, system: System) -> System:
        """A kind that no scenario before has, on the first one's switches."""
        whole = whole_node(scenario, system)
        if scenario is self.first:
            return whole
        switches = self.switches.network
        if switches is None or whole.network is None:
            bare = self.switches.id if switches is None else whole.id
            raise InputError(
                f"--beside: {scenario.path} runs on {system.id}, {self.first.path} on "
                f"{self.switches.id}, and {bare} has no network, so that they share no fabric; "
                f"use systems with one"
            )
        return replace(whole, network=_below(switches, whole.network))

    def _by_name(
        self, scenario: Scenario, group: NodeGroup, theirs: Sequence[tuple[str, System]]
    ) -> System:
        for name, kind in theirs:
            if name == group.name:
                return kind
        names = ", ".join(dict.fromkeys(name for name, _ in theirs))
        raise InputError(
            f"--beside: group {group.name!r} of {scenario.path} is of {group.system.id}, which "
            f"stands for several kinds of node here; give it the name of one that is there: "
            f"{names} (cluster.groups.NAME)"
        )


def _several(scenario: Scenario, system: str) -> bool:
    """Whether a scenario has unlike nodes of one system."""
    alike = [kind for kind in scenario.job.cluster.systems if kind.id == system]
    return any(kind != alike[0] for kind in alike)


def whole_node(scenario: Scenario, system: System) -> System:
    """A scenario's node with all its devices and interfaces, used by it or not."""
    full = load_catalog(scenario.catalog).system(system.id).devices_per_node
    if system.network is None or full == system.devices_per_node:
        return replace(system, devices_per_node=full)
    nics = system.network.nics_per_node * full // system.devices_per_node
    network = replace(system.network, nics_per_node=nics)
    return replace(system, devices_per_node=full, network=network)


def _below(switches: Network, node: Network) -> Network:
    """A node's own interfaces on another's switches."""
    return replace(
        switches,
        nics_per_node=node.nics_per_node,
        nic_bandwidth=node.nic_bandwidth,
        latency=node.latency,
        efficiency=node.efficiency,
    )


def _on_links(job: Job, whole: Sequence[System]) -> Job:
    """The job on others' links, with its own devices and as many of a node as before."""
    cluster = job.cluster
    used = [_used(kind, system) for kind, system in zip(whole, cluster.systems, strict=True)]
    groups = tuple(
        replace(group, system=kind) for group, kind in zip(cluster.groups, used, strict=False)
    )
    return replace(job, cluster=replace(cluster, system=used[0], groups=groups))


def _used(whole: System, system: System) -> System:
    """The part of a whole node that a job uses."""
    used, network = system.devices_per_node, whole.network
    if network is not None:
        nics = -(-network.nics_per_node * used // whole.devices_per_node)
        network = replace(network, nics_per_node=nics)
    return replace(whole, device=system.device, devices_per_node=used, network=network)


def free_nodes(used: Iterable[tuple[int, ...]], count: int) -> tuple[int, ...]:
    """The first so many nodes that nobody uses."""
    taken = {node for nodes in used for node in nodes}
    free = [node for node in range(len(taken) + count) if node not in taken]
    return tuple(free[:count])


def _names(names: Sequence[str]) -> list[str]:
    """The scenarios' names, numbered where two are the same."""
    return [
        f"{name} ({names[: index + 1].count(name)})" if names.count(name) > 1 else name
        for index, name in enumerate(names)
    ]
