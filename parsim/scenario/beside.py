"""Scenarios on one cluster: whose links they are, and which nodes each takes.

A kind of node belongs to the first scenario that has it: jobs on nodes of one system take its links
and interfaces, with devices of their own. The switches are the first scenario's. Where a scenario
has several kinds of one system (half of the nodes with slower interfaces), the names of the groups
tell them apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from parsim.cluster.hardware import Network, NodeGroup, System
from parsim.cluster.mixed import in_groups
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.errors import InputError
from parsim.scenario.record import Scenario
from parsim.sim.placed_jobs import JobAt

Nodes = tuple[int, ...] | None


def shared_jobs(found: Sequence[tuple[Scenario, Nodes]]) -> tuple[tuple[JobAt, ...], System]:
    """The jobs of scenarios on shared links, and the first one's whole nodes.

    A scenario without nodes takes the first ones that none before it has.

    Raises:
        InputError: nodes that no network joins, kinds of node that nothing tells apart, parts that
            fail in a scenario but the first, or no plan.
    """
    first = found[0][0]
    kinds, jobs = _Kinds(first), list[JobAt]()
    named = _names([one.name for one, _ in found])
    for (one, nodes), name in zip(found, named, strict=True):
        _check(first, one)
        groups = in_groups(one.job.cluster).groups
        whole = [kinds.of(one, group) for group in groups]
        job = replace(one.job, cluster=replace(one.job.cluster, failed=()))
        jobs.append(
            JobAt(
                name=name,
                job=job if one is first else _on_links(job, whole),
                plan=one.fixed_plan(),
                nodes=nodes if nodes is not None else _next(jobs, one.job.cluster.num_nodes),
                streams=one.background.streams,
                kinds=tuple(
                    kind
                    for kind, group in zip(whole, groups, strict=True)
                    for _ in range(group.num_nodes)
                ),
                slow=dict(one.jitter.slow_ranks),
            )
        )
    return tuple(jobs), kinds.switches


class _Kinds:
    """Whole nodes by the scenario that had them first."""

    def __init__(self, first: Scenario) -> None:
        group = in_groups(first.job.cluster).groups[0]
        self.first, self.switches = first, whole_node(first, group.system)
        self.known: list[tuple[Scenario, str, System]] = []

    def of(self, one: Scenario, group: NodeGroup) -> System:
        """The kind of a scenario's group of nodes."""
        own = group.system
        theirs = [
            (name, kind)
            for owner, name, kind in self.known
            if kind.id == own.id and owner is not one
        ]
        distinct = [kind for i, (_, kind) in enumerate(theirs)
                    if kind not in [before for _, before in theirs[:i]]]  # fmt: skip
        if not distinct:
            found = self._new(one, own)
        elif len(distinct) == 1 and not _several(one, own.id):
            found = distinct[0]
        else:
            found = self._by_name(one, group, theirs)
        self.known.append((one, group.name, found))
        return found

    def _new(self, one: Scenario, own: System) -> System:
        """A kind that no scenario before has, on the first one's switches."""
        whole = whole_node(one, own)
        if one is self.first:
            return whole
        switches = self.switches.network
        if switches is None or whole.network is None:
            bare = self.switches.id if switches is None else whole.id
            raise InputError(
                f"--beside: {one.path} runs on {own.id}, {self.first.path} on {self.switches.id}, "
                f"and {bare} has no network, so that they share no fabric; use systems with one"
            )
        return replace(whole, network=_below(switches, whole.network))

    def _by_name(
        self, one: Scenario, group: NodeGroup, theirs: Sequence[tuple[str, System]]
    ) -> System:
        for name, kind in theirs:
            if name == group.name:
                return kind
        names = ", ".join(dict.fromkeys(name for name, _ in theirs))
        raise InputError(
            f"--beside: group {group.name!r} of {one.path} is of {group.system.id}, which stands "
            f"for several kinds of node here; give it the name of one that is there: {names} "
            f"(cluster.groups.NAME)"
        )


def _several(one: Scenario, system: str) -> bool:
    """Whether a scenario has unlike nodes of one system."""
    own = [kind for kind in one.job.cluster.systems if kind.id == system]
    return any(kind != own[0] for kind in own)


def whole_node(one: Scenario, system: System) -> System:
    """A scenario's node with all its devices and interfaces, used by it or not."""
    full = load_catalog(one.catalog).system(system.id).devices_per_node
    if system.network is None or full == system.devices_per_node:
        return replace(system, devices_per_node=full)
    nics = system.network.nics_per_node * full // system.devices_per_node
    network = replace(system.network, nics_per_node=nics)
    return replace(system, devices_per_node=full, network=network)


def _below(switches: Network, own: Network) -> Network:
    """A node's own interfaces on another's switches."""
    return replace(
        switches,
        nics_per_node=own.nics_per_node,
        nic_bandwidth=own.nic_bandwidth,
        latency=own.latency,
        efficiency=own.efficiency,
    )


def _on_links(job: Job, whole: Sequence[System]) -> Job:
    """The job on others' links, with its own devices and as many of a node as before."""
    cluster = job.cluster
    own = [_used(kind, one) for kind, one in zip(whole, cluster.systems, strict=True)]
    groups = tuple(
        replace(group, system=kind) for group, kind in zip(cluster.groups, own, strict=False)
    )
    return replace(job, cluster=replace(cluster, system=own[0], groups=groups))


def _used(whole: System, own: System) -> System:
    """As much of a whole node as a job uses."""
    used, network = own.devices_per_node, whole.network
    if network is not None:
        nics = -(-network.nics_per_node * used // whole.devices_per_node)
        network = replace(network, nics_per_node=nics)
    return replace(whole, device=own.device, devices_per_node=used, network=network)


def _next(jobs: Sequence[JobAt], count: int) -> tuple[int, ...]:
    taken = {node for one in jobs for node in one.nodes}
    free = (node for node in range(len(taken) + count) if node not in taken)
    return tuple(next(free) for _ in range(count))


def _names(names: Sequence[str]) -> list[str]:
    """The scenarios' names, numbered where two are the same."""
    return [
        f"{name} ({names[: place + 1].count(name)})" if names.count(name) > 1 else name
        for place, name in enumerate(names)
    ]


def _check(first: Scenario, one: Scenario) -> None:
    if one is not first and one.job.cluster.failed:
        raise InputError(
            f"--beside: {one.path} has cluster.failed={list(one.job.cluster.failed)}, which "
            f"belongs to the shared cluster; write it in {first.path}"
        )
