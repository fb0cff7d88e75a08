"""The plan and search blocks, with what follows from the cluster, the batch and the software."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from parsim.cluster.hardware import Cluster
from parsim.cost.job import Job
from parsim.cost.software import Software
from parsim.errors import PlanError
from parsim.plan import Plan, PlanSpace, Recompute
from parsim.plan.rules import check_plan, microbatches_for
from parsim.scenario.positions import Tree
from parsim.scenario.schema import PlanBlock, ScenarioFile, SharedBlock

_SWITCHES = (
    "gradient_precision", "reduce_precision", "overlap_grad_reduce", "overlap_param_gather",
    "overlap_p2p", "scatter_p2p",
)  # fmt: skip
_REPLICAS = ("dp", "dp_replicate", "dp_shard")


def build_plan(tree: Tree, file: ScenarioFile, job: Job) -> Plan | None:
    """The plan block as a legal plan, or None without one.

    Raises:
        PlanError: the plan is not legal for this model, cluster and global batch.
    """
    if file.plan is None:
        return None
    values = _shared(file.plan, file.training.precision, job.software)
    values |= {key: value for key, value in file.plan.given().items() if key in _own_fields()}
    if "recompute" in values:
        values["recompute"] = Recompute[values["recompute"].upper()]
    values |= _replicas(tree, file.plan, job.cluster)
    with tree.located("plan", also="training", error=PlanError):
        plan = Plan(**values)
        stated = file.plan.given().get("num_microbatches")
        return _with_microbatches(plan, file.training.global_batch_size, stated, job)


def _own_fields() -> set[str]:
    """Keys of the plan block that a plan's fields are taken from as they are."""
    own = PlanBlock.model_fields.keys() - SharedBlock.model_fields.keys()
    return own - {*_REPLICAS, "num_microbatches"}


def _shared(block: SharedBlock, precision: str, software: Software) -> dict[str, Any]:
    """What all plans of a scenario share: the habits of the software, unless the block differs."""
    given = {key: value for key, value in block.given().items() if key in SharedBlock.model_fields}
    if "bucket_size" in given:
        given["bucket_bytes"] = given.pop("bucket_size")
    habits = {name: getattr(software, name) for name in _SWITCHES}
    return {"precision": precision, **habits, **given}


def _replicas(tree: Tree, block: PlanBlock, cluster: Cluster) -> Mapping[str, int]:
    """dp_replicate and dp_shard: as written, the missing one from the number of devices.

    A degree that the others do not leave room for is left to `check_plan`, which names them all.
    """
    given = block.given()
    written = [key for key in _REPLICAS if key in given]
    if "dp" in written and len(written) > 1:
        raise tree.error(
            ("plan", "dp"), f"cannot stand beside {written[1]}; give dp, or dp_replicate and "
            f"dp_shard"
        )  # fmt: skip
    sharded = given.get("zero_stage", 0) > 0
    model_ranks = given.get("tp", 1) * given.get("pp", 1) * given.get("cp", 1)
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
    check_plan(replace(plan, num_microbatches=plan.pp), job.model, job.cluster)
    count = microbatches_for(batch, plan.microbatch_size, plan.dp)
    if stated is not None and stated != count:
        size = plan.microbatch_size
        raise PlanError(
            f"num_microbatches={stated} x microbatch_size={size} x dp={plan.dp} = "
            f"{stated * size * plan.dp}, but global_batch_size={batch}; use "
            f"num_microbatches={count} or leave it out"
        )
    plan = replace(plan, num_microbatches=count)
    check_plan(plan, job.model, job.cluster)
    return plan


def build_space(tree: Tree, file: ScenarioFile, job: Job) -> PlanSpace | None:
    """The search block as a space of plans, or None without one.

    Raises:
        PlanError: what all plans of the space share is not legal on this device.
    """
    if file.search is None:
        return None
    common = Plan(**_shared(file.search.common, file.training.precision, job.software))
    one = replace(job.cluster.system, devices_per_node=1)
    with tree.located("search", "common", also="training", error=PlanError):
        check_plan(common, job.model, Cluster(system=one, num_nodes=1))
    values = {key: value for key, value in file.search.given().items() if key != "common"}
    if "recompute" in values:
        values["recompute"] = tuple(Recompute[name.upper()] for name in values["recompute"])
    batch = file.training.global_batch_size
    return PlanSpace(global_batch_size=batch, common=common, **values)
