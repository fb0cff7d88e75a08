"""What `simulate` and `timeline` do on shared links: one job, or several on one fabric."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parsim.errors import InputError
from parsim.terminal import load, note, progress

if TYPE_CHECKING:
    from parsim.scenario import Scenario
    from parsim.sim.contention import Contention
    from parsim.sim.jobs_together import JobsTogether

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

Placed = tuple["Scenario", "tuple[int, ...] | None"]


def contended(found: Scenario) -> Contention:
    """The scenario's step on shared links, with its listed slow ranks."""
    from parsim.sim.contention import simulate_contention

    _note_slow([found])
    with progress("simulating shared links"):
        return simulate_contention(
            found.job,
            found.fixed_plan(),
            background=found.background,
            slow=dict(found.jitter.slow_ranks),
        )


def _note_slow(found: Sequence[Scenario]) -> None:
    if any(one.jitter.slow_ranks for one in found):
        note("note: on shared links the listed slow ranks compute so much longer, and no other")


def placed_jobs(found: Scenario, on: str | None, beside: Sequence[str] | None) -> list[Placed]:
    """The scenario and those beside it, each with its nodes where they are said.

    Raises:
        InputError: nodes without another job, or no list of nodes.
    """
    from parsim.cluster.node_list import read_nodes

    if not beside:
        if on is not None:
            raise InputError(
                f"--on {on} says which nodes of a shared cluster this job takes; name a job with "
                f"--beside, e.g. --beside other.yaml@4-7, or leave --on out"
            )
        return []
    jobs: list[Placed] = [(found, None if on is None else read_nodes(on, "--on"))]
    for text in beside:
        file, nodes = _file_and_nodes(text)
        here = None if nodes is None else read_nodes(nodes, f"--beside {file} on nodes")
        jobs.append((load(Path(file), None), here))
    # those that say where they are come first, or others would take their nodes
    if jobs[0][1] is None and any(nodes is not None for _, nodes in jobs[1:]):
        count = found.job.cluster.num_nodes
        taken = {node for _, nodes in jobs for node in nodes or ()}
        free = [node for node in range(count + len(taken)) if node not in taken]
        jobs[0] = (found, tuple(free[:count]))
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


def simulate_together(jobs: Sequence[Placed]) -> JobsTogether:
    """All jobs at once on the first one's cluster."""
    from parsim.scenario.beside import shared_jobs
    from parsim.sim.jobs_together import jobs_together

    placed, system = shared_jobs(jobs)
    _note_slow([one for one, _ in jobs])
    first = jobs[0][0]
    with progress("simulating jobs on shared links"):
        return jobs_together(
            placed, system, failed=first.job.cluster.failed, storage=storage_of(jobs)
        )


def storage_of(jobs: Sequence[Placed]) -> float | None:
    """Bandwidth of the storage: the first scenario's that says it, where streams use one."""
    if not any(one.background.needs_storage for one, _ in jobs):
        return None
    said = [one.background.storage_bandwidth for one, _ in jobs]
    return next(rate for rate in said if rate is not None)


def save_together(jobs: Sequence[Placed], path: Path) -> None:
    """A trace of all jobs on shared links, with a counter for each class of links."""
    from parsim.report.contention import check_trace
    from parsim.report.trace import save_trace
    from parsim.scenario.beside import shared_jobs
    from parsim.sim.jobs_together import together_timeline

    check_trace(path, "--beside")
    placed, system = shared_jobs(jobs)
    first = jobs[0][0]
    timeline, links = together_timeline(
        placed, system, failed=first.job.cluster.failed, storage=storage_of(jobs)
    )
    save_trace(timeline, path, links)
