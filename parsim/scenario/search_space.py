"""The search block as a space of plans: what all share, and the values of each axis."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from parsim.cluster.hardware import Cluster
from parsim.cost.job import Job
from parsim.errors import PlanError
from parsim.plan import CpCommType, Plan, PlanSpace, Recompute
from parsim.plan.rules.violation import check_plan
from parsim.scenario.plan import shared_fields
from parsim.scenario.positions import Tree
from parsim.scenario.schema.file import ScenarioFile
from parsim.scenario.schema.plan import SearchBlock
from parsim.scenario.strategy import build_strategy
from parsim.space.words import preset


def build_space(tree: Tree, file: ScenarioFile, job: Job, plan: Plan | None) -> PlanSpace | None:
    """The search block as a space of plans, or None without one.

    A plan with a schedule of the user's own keeps it in a search, with its pp, v and number of
    micro-batches, unless the search block names schedules.

    Raises:
        PlanError: what all plans of the space share is not legal on this device.
        ScenarioError: the space leaves out the pp or v of the user's own schedule.
    """
    if file.search is None:
        return None
    common = Plan(**shared_fields(file.search.common, file.training.precision, job.software))
    with tree.located("search", "common", also="training", error=PlanError):
        for system in job.cluster.systems:
            node = replace(system, devices_per_node=1)
            check_plan(common, job.model, Cluster(system=node, num_nodes=1))
    batch = file.training.global_batch_size
    space = PlanSpace(global_batch_size=batch, common=common)
    space = space.with_axes(_axis_values(tree, file.search, job))
    if plan is None or not plan.from_file or "schedule" in file.search.given():
        return space
    return _with_own_schedule(tree, space, plan)


def _axis_values(tree: Tree, search: SearchBlock, job: Job) -> dict[str, Any]:
    """Values of axes: those of the preset, and in their place what the block gives.

    Raises:
        ScenarioError: an axis is given both for itself and for all plans.
    """
    given = search.given()
    values = preset(given.get("space", "standard"), job)
    for key in search.common.given():
        if key in given:
            raise tree.error(("search", key), f"cannot stand beside search.common.{key}; leave one")
        values.pop(key, None)
    values |= {key: value for key, value in given.items() if key not in ("common", "space")}
    if "recompute" in given:
        values["recompute"] = tuple(Recompute[name.upper()] for name in values["recompute"])
    if "cp_comm_type" in given:
        values["cp_comm_type"] = tuple(CpCommType[name.upper()] for name in given["cp_comm_type"])
    if "strategies" in given:
        values["strategies"] = tuple(
            build_strategy(tree, block, ("search", "strategies", number))
            for number, block in enumerate(search.strategies)
        )
    return values


def _with_own_schedule(tree: Tree, space: PlanSpace, plan: Plan) -> PlanSpace:
    """The space with all that a schedule decides fixed."""
    for name, allowed in (("pp", space.pp), ("v", space.v)):
        value = getattr(plan, name)
        if allowed is not None and value not in allowed:
            raise tree.error(
                ("search", name),
                f"leaves out {value}, that of the plan's own schedule "
                f"{plan.schedule}; add it, or name schedules to search, e.g. 'schedule: 1f1b'",
            )
    fixed = ("schedule", "actions", "pp", "v", "num_microbatches")
    common = replace(space.common, **{name: getattr(plan, name) for name in fixed})
    return replace(space, pp=(plan.pp,), v=(plan.v,), schedule=(plan.schedule,), common=common)
