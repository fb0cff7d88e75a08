"""The plan block, with what follows from the cluster, the batch and the software."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import lcm
from typing import Any

from parsim.cluster.hardware import Cluster
from parsim.cost.job import Job
from parsim.cost.legal import check_legal
from parsim.cost.software import Software
from parsim.errors import PlanError
from parsim.plan import CpCommType, Plan, Recompute
from parsim.plan.layout_axes import axes_words, in_axes
from parsim.plan.names import V_SHAPED
from parsim.plan.rules.batch import microbatches_for
from parsim.plan.rules.violation import check_plan
from parsim.plan.stages import Stage
from parsim.scenario.positions import Tree
from parsim.scenario.schedule import check_replicas_rows, read_replicas_rows, read_schedule
from parsim.scenario.schema.file import ScenarioFile
from parsim.scenario.schema.plan import PlanBlock, SharedBlock
from parsim.scenario.strategy import build_strategy

_SWITCHES = ("overlap_grad_reduce", "overlap_param_gather", "overlap_p2p", "scatter_p2p")
_REPLICAS = ("dp", "dp_replicate", "dp_shard")


def build_plan(tree: Tree, file: ScenarioFile, job: Job, notes: list[str]) -> Plan | None:
    """The plan block as a legal plan, or None without one; `notes` takes what a user must know.

    Raises:
        PlanError: the plan is not legal for this model, cluster and global batch.
        ScheduleError: its schedule is a file that is wrong or does not fit the plan.
    """
    if file.plan is None:
        return None
    values = _plan_values(tree, file, file.plan, job)
    schedule = read_schedule(tree, file.plan, notes)
    if schedule is not None:
        values |= {"schedule": schedule.name, "actions": schedule.to_csv().replace("\r\n", "\n")}
        values |= {"pp": schedule.pp, "v": schedule.num_stages // schedule.pp}
    values |= read_replicas_rows(tree, file.plan)
    values |= _replicas(tree, file.plan, job.cluster, values.get("pp", 1))
    with tree.located("plan", also="training", error=PlanError):
        written = Plan(**values)
        plan = in_axes(written, job.model)
        if plan is not written:
            notes.append(f"{written.strategy.label()} is the plan {axes_words(plan)}")
        stated = file.plan.given().get("num_microbatches")
        plan = _with_microbatches(plan, file.training.global_batch_size, stated, job)
        if schedule is not None:
            _check_own_microbatches(plan, schedule.num_microbatches)
    check_replicas_rows(tree, plan)
    return plan


def _plan_values(tree: Tree, file: ScenarioFile, block: PlanBlock, job: Job) -> dict[str, Any]:
    """The block's keys as fields of a plan, without its replicas and a schedule of its own."""
    values = shared_fields(block, file.training.precision, job.software)
    values |= {key: value for key, value in block.given().items() if key in _own_fields()}
    if "recompute" in values:
        values["recompute"] = Recompute[values["recompute"].upper()]
    if "cp_comm_type" in values:
        values["cp_comm_type"] = CpCommType[values["cp_comm_type"].upper()]
    if block.strategy is not None:
        values["strategy"] = build_strategy(tree, block.strategy)
    if "stages" in values:
        values["stages"] = tuple(Stage(**stage.given()) for stage in block.stages)
        values.setdefault("pp", len(values["stages"]))
    if values.get("schedule") in V_SHAPED:
        values.setdefault("v", 2)  # which is all that it can be
    return values


def _check_own_microbatches(plan: Plan, count: int) -> None:
    if plan.num_microbatches == count:
        return
    size, dp = plan.microbatch_size, plan.dp
    raise PlanError(
        f"schedule={plan.schedule!r} has {count} micro-batches, but global_batch_size="
        f"{plan.global_batch_size} / (microbatch_size={size} x dp={dp}) = {plan.num_microbatches}; "
        f"use global_batch_size={count * size * dp}, or a schedule of {plan.num_microbatches}"
    )


def _own_fields() -> set[str]:
    """Keys of the plan block that a plan's fields are taken from as they are."""
    names = PlanBlock.model_fields.keys() - SharedBlock.model_fields.keys()
    return names - {*_REPLICAS, "num_microbatches"}


def shared_fields(block: SharedBlock, precision: str, software: Software) -> dict[str, Any]:
    """What all plans of a scenario share: the habits of the software, unless the block differs."""
    given = {key: value for key, value in block.given().items() if key in SharedBlock.model_fields}
    if "bucket_size" in given:
        given["bucket_bytes"] = given.pop("bucket_size")
    habits = {name: getattr(software, name) for name in _SWITCHES}
    sums = software.sums_of(precision, given.get("gradient_precision"))
    return {"precision": precision, **sums, **habits, **given}


def _replicas(tree: Tree, block: PlanBlock, cluster: Cluster, pp: int) -> Mapping[str, int]:
    """dp_replicate and dp_shard: as written, the missing one from the number of devices.

    A degree that the others do not leave room for is left to `check_plan`, which names them all.
    """
    given = block.given()
    if "stages" in given:  # which say how many replicas there are
        for key in ("dp_shard", "dp_replicate"):
            if key in given:
                rest = "cannot stand beside stages, each of which says its replicas; leave it out"
                raise tree.error(("plan", key), rest)
        return {"dp_replicate": given.get("dp", 1), "dp_shard": 1}
    written = [key for key in _REPLICAS if key in given]
    if "dp" in written and len(written) > 1:
        rest = f"cannot stand beside {written[1]}; give dp, or dp_replicate and dp_shard"
        raise tree.error(("plan", "dp"), f"{rest} (--set plan.dp=null takes dp out)")
    sharded = given.get("zero_stage", 0) > 0
    model_ranks = given.get("tp", 1) * pp * given.get("cp", 1)
    free = max(1, cluster.num_devices // model_ranks)
    if "dp_shard" in given:
        shard = given["dp_shard"]
        return {"dp_shard": shard, "dp_replicate": given.get("dp_replicate", max(1, free // shard))}
    if "dp_replicate" in given:
        replicate = given["dp_replicate"]
        return {"dp_replicate": replicate, "dp_shard": max(1, free // replicate) if sharded else 1}
    name, other = ("dp_shard", "dp_replicate") if sharded else ("dp_replicate", "dp_shard")
    return {name: given.get("dp", free), other: 1}


def _with_microbatches(plan: Plan, batch: int, stated: int | None, job: Job) -> Plan:
    """Check the plan, then let the global batch decide the number of micro-batches.

    The first check uses pp micro-batches, which every schedule allows: a wrong degree is told
    as such and not as a global batch that it does not divide.
    """
    shared = lcm(*(stage.replicas for stage in plan.stages or ()))
    even = replace(plan, num_microbatches=plan.pp * shared, replica_microbatches=None)
    check_plan(even, job.model, job.cluster)
    if stated is not None:
        count = stated
    elif plan.replica_microbatches is not None:
        count = max(plan.replica_microbatches)
    else:
        count = microbatches_for(batch, plan.microbatch_size, plan.dp)
    plan = replace(plan, num_microbatches=count)
    check_legal(job, plan)
    return plan
