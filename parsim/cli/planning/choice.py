"""`parsim search` among clusters of several sizes: what its options ask for, and the answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from parsim.cli.terminal import note, print_json, progress, show
from parsim.errors import InputError, shown

if TYPE_CHECKING:
    from parsim.plan import Plan
    from parsim.planner.choice import ChoiceRequest
    from parsim.scenario import Scenario

MOST_NODES = 10**6
"""Nodes of the largest cluster that is looked at."""


def choice_request(
    loaded: Scenario,
    nodes: str | None,
    objective: str | None,
    deadline: str | None,
    budget: float | None,
) -> ChoiceRequest:
    """What the options ask for; the fewest devices are sought among all sizes of the cluster."""
    from parsim.planner.choice import ChoiceRequest, Limits, node_counts, read_objective
    from parsim.units import asked_quantity

    seconds = None if deadline is None else asked_quantity("--deadline", deadline, "span")
    least = read_objective(objective or "time")
    counts: tuple[int, ...] = (loaded.job.cluster.num_nodes,)
    if nodes is not None:
        counts = _counts(nodes)
    elif least == "devices":
        counts = node_counts(loaded.job)
    limits = Limits(deadline=seconds, budget=budget)
    return ChoiceRequest(nodes=counts, objective=least, limits=limits)


def _counts(text: str) -> tuple[int, ...]:
    from parsim.units import whole_number

    counts = [whole_number(word.strip()) or 0 for word in text.split(",")]
    if not all(0 < count <= MOST_NODES for count in counts):
        raise InputError(
            f"--nodes '{shown(text)}' must be node counts from 1 to {MOST_NODES:,} with commas "
            f"between, e.g. 32,64,128"
        )
    return tuple(counts)


def choose_size(
    loaded: Scenario,
    request: ChoiceRequest,
    picture: Path | None,
    as_json: bool,
) -> tuple[Scenario, Plan]:
    """Show the best plans among clusters of several sizes; the best one, and what it is for."""
    from parsim.planner.choice import choose
    from parsim.report.text.planning.choices import choices_view

    space = loaded.plan_space()
    with progress("searching cluster sizes") as step:
        result = choose(loaded.job, space, loaded.goal, request, progress=step)
    if as_json:
        print_json(result.to_json())
    else:
        show(choices_view(result))
    if picture is not None:
        from parsim.report.picture.planning.choices import draw_choices

        draw_choices(result, picture)
        note(f"picture written to {picture}")
    best = result.choices[0]
    cluster = replace(loaded.job.cluster, num_nodes=best.nodes)
    return replace(loaded, job=replace(loaded.job, cluster=cluster)), best.ranked.plan
