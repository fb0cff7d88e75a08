"""Scenarios on one cluster: whose links they are, and which nodes each takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from parsim.cluster.hardware import System
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.errors import InputError
from parsim.scenario.record import Scenario
from parsim.sim.jobs_together import JobAt

Nodes = tuple[int, ...] | None


def shared_jobs(found: Sequence[tuple[Scenario, Nodes]]) -> tuple[tuple[JobAt, ...], System]:
    """The jobs of scenarios on the first one's links, and its whole nodes.

    A scenario without nodes takes the first ones that none before it has. Streams that come every
    so many steps are left out, for the steps beside each other are few.

    Raises:
        InputError: another system, parts that fail in a scenario but the first, or no plan.
    """
    first = found[0][0]
    system, jobs = whole_nodes(first), list[JobAt]()
    named = _names([one.name for one, _ in found])
    for (one, nodes), name in zip(found, named, strict=True):
        _check(first, one)
        job = replace(one.job, cluster=replace(one.job.cluster, failed=()))
        if one is not first:
            job = _on_links(job, system)
        jobs.append(
            JobAt(
                name=name,
                job=job,
                plan=one.fixed_plan(),
                nodes=nodes if nodes is not None else _next(jobs, one.job.cluster.num_nodes),
                streams=tuple(each for each in one.background.streams if each.every == 1),
            )
        )
    return tuple(jobs), system


def whole_nodes(one: Scenario) -> System:
    """The scenario's system with all devices and interfaces of a node, used by it or not."""
    system = one.job.system
    full = load_catalog(one.catalog).system(system.id).devices_per_node
    if system.network is None or full == system.devices_per_node:
        return replace(system, devices_per_node=full)
    nics = system.network.nics_per_node * full // system.devices_per_node
    network = replace(system.network, nics_per_node=nics)
    return replace(system, devices_per_node=full, network=network)


def _on_links(job: Job, system: System) -> Job:
    """The job on another's links, with its own devices and as many of a node as before."""
    used, network = job.system.devices_per_node, system.network
    if network is not None:
        nics = -(-network.nics_per_node * used // system.devices_per_node)
        network = replace(network, nics_per_node=nics)
    own = replace(system, device=job.device, devices_per_node=used, network=network)
    return replace(job, cluster=replace(job.cluster, system=own))


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
    if one.job.system.id != first.job.system.id:
        raise InputError(
            f"{one.path} runs on {one.job.system.id}, {first.path} on {first.job.system.id}; jobs "
            f"that share a fabric run on nodes of one system"
        )
    if one is not first and one.job.cluster.failed:
        raise InputError(
            f"{one.path}: cluster.failed belongs to the shared cluster; write it in {first.path}"
        )
