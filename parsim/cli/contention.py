"""What `simulate` and `timeline` do on shared links: one job, or several on one fabric."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parsim.cli.terminal import load, note, progress
from parsim.errors import InputError

if TYPE_CHECKING:
    from parsim.scenario import Scenario
    from parsim.sim.contention.contention import Contention
    from parsim.sim.contention.jobs_together import JobsTogether

Contended = Annotated[
    bool, typer.Option("--contention", help="also with links that all traffic shares (tier C)")
]
Beside = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE[@NODES]",
        help="another job on the same cluster, e.g. other.yaml@4-7; implies --contention",
    ),
]
On = Annotated[
    str | None,
    typer.Option(metavar="NODES", help="nodes of the cluster, e.g. 0-3; with --beside"),
]
_AT_NODES = re.compile(r"(?P<file>.+)@(?P<nodes>[\d,\-\s]+)")

PlacedJob = tuple["Scenario", "tuple[int, ...] | None"]
"""A scenario and the nodes of the shared cluster that it takes, where they are said."""


def simulate_shared_links(scenario: Scenario) -> Contention:
    """The scenario's step on shared links, with its listed slow ranks."""
    from parsim.sim.data_parallel.shared_links import contention_of

    _note_slow([scenario])
    with progress("simulating shared links"):
        return contention_of(**_step(scenario))


def _step(scenario: Scenario) -> dict[str, Any]:
    """What tier C takes for one job."""
    return {
        "job": scenario.job,
        "plan": scenario.fixed_plan(),
        "background": scenario.background,
        "jitter": scenario.jitter,
    }


def _note_slow(scenarios: Iterable[Scenario]) -> None:
    if any(scenario.jitter.slow_ranks for scenario in scenarios):
        note("note: on shared links the listed slow ranks compute so much longer, and no other")


def placed_jobs(
    scenario: Scenario, on: str | None, beside: Sequence[str] | None
) -> list[PlacedJob]:
    """The scenario and those beside it, each with its nodes where they are said.

    Raises:
        InputError: nodes without another job, or no list of nodes.
    """
    if not beside:
        if on is not None:
            raise InputError(
                f"--on {on} says which nodes of a shared cluster this job takes; name a job with "
                f"--beside, e.g. --beside other.yaml@4-7, or leave --on out"
            )
        return []
    from parsim.cluster.placement import read_nodes
    from parsim.scenario.beside import free_nodes

    jobs: list[PlacedJob] = [(scenario, None if on is None else read_nodes(on, "--on"))]
    for text in beside:
        file, words = _file_and_nodes(text)
        nodes = None if words is None else read_nodes(words, f"--beside {file} on nodes")
        jobs.append((load(Path(file), None), nodes))
    # those that say where they are come first, or others would take their nodes
    if jobs[0][1] is None and any(nodes is not None for _, nodes in jobs[1:]):
        taken = [nodes for _, nodes in jobs if nodes is not None]
        jobs[0] = (scenario, free_nodes(taken, scenario.job.cluster.num_nodes))
    return jobs


def _file_and_nodes(text: str) -> tuple[str, str | None]:
    """FILE and NODES of FILE@NODES; a file's own name may have an @."""
    parts = _AT_NODES.fullmatch(text)
    if parts:
        return parts["file"], parts["nodes"]
    file, at, nodes = text.rpartition("@")
    if at and not Path(text).exists() and Path(file).exists():
        return file, nodes
    return text, None


def simulate_together(jobs: Sequence[PlacedJob]) -> JobsTogether:
    """All jobs at once on the first one's cluster."""
    from parsim.sim.contention.jobs_together import jobs_together

    fabric = _fabric(jobs)
    _note_slow(scenario for scenario, _ in jobs)
    with progress("simulating jobs on shared links"):
        return jobs_together(**fabric)


def _fabric(jobs: Sequence[PlacedJob]) -> dict[str, Any]:
    """What tier C takes for several jobs; the storage is of the first that says its bandwidth."""
    from parsim.scenario.beside import shared_jobs

    placed, system = shared_jobs(jobs)
    backgrounds = [scenario.background for scenario, _ in jobs]
    stored = any(background.needs_storage for background in backgrounds)
    rates = [background.storage_bandwidth for background in backgrounds if stored]
    return {
        "jobs": placed,
        "system": system,
        "failed": jobs[0][0].job.cluster.failed,
        "storage": next((rate for rate in rates if rate is not None), None),
    }


def save_contended(scenario: Scenario, jobs: Sequence[PlacedJob], path: Path) -> None:
    """Write a trace of the step, or of all jobs, with a counter for each class of links.

    Raises:
        InputError: another form than .json, or a path that cannot be written.
    """
    from parsim.report.timeline.trace import save_trace
    from parsim.report.writing import check_writable
    from parsim.sim.contention.together_timeline import together_timeline
    from parsim.sim.data_parallel.shared_links import contended_timeline_of

    if path.suffix != ".json":
        option = "--beside" if jobs else "--contention"
        raise InputError(f"{path}: {option} is drawn in Perfetto's form only; write a .json")
    check_writable(path)
    if jobs:
        timeline, links = together_timeline(**_fabric(jobs))
    else:
        timeline, links = contended_timeline_of(**_step(scenario))
    save_trace(timeline, path, links)
