"""Keys that a scenario states and that change nothing: a note names each, and why.

A value that a plan without the key would have says nothing new and gets no note.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any

from parsim.cost.job import Job
from parsim.cost.layer.kept.recomputed_modules import modules_of
from parsim.cost.software import software
from parsim.model.model import Model
from parsim.plan import Plan
from parsim.plan.precision import DELAYED, precision
from parsim.scenario.schema.file import ScenarioFile
from parsim.scenario.schema.plan import PlanBlock
from parsim.schedule import TIMED

Why = Callable[[Plan, Job], str]
"""From a plan and its job to why a key of theirs has no effect; "" where it has one."""


def without_effect(file: ScenarioFile, job: Job, plan: Plan | None) -> Iterator[str]:
    """Notes on what the file states in vain."""
    if plan is not None:
        yield from _of_plan((file.plan or PlanBlock()).given(), plan, job)
    yield from _of_training(file, job)
    yield from _of_software(file, job, plan)
    ends = {end for s in file.background.streams.values() for end in (s.source, s.target)}
    if "storage_bandwidth" in file.background.given() and "storage" not in ends:
        yield _note("background.storage_bandwidth", "no stream begins or ends at storage")


def _note(key: str, why: str) -> str:
    return f"{key} has no effect on the prediction: {why}"


def _of_plan(given: Mapping[str, Any], plan: Plan, job: Job) -> Iterator[str]:
    usual = {field.name: field.default for field in fields(Plan)}
    for key, why in _PLAN.items():
        value = getattr(plan, _FIELDS.get(key, key))
        habit = getattr(job.software, key, usual.get(_FIELDS.get(key, key)))
        if key in given and value != habit and (reason := why(plan, job)):
            yield _note(f"plan.{key}", reason)
    for name in plan.recompute_modules:
        if not _has_module(job.model, name):
            yield _note("plan.recompute_modules", f"{job.model.name} has no {name}")


def _has_module(model: Model, name: str) -> bool:
    """Whether a layer has operators of a module that backward may compute again."""
    if name == "moe_act":  # a part of an operator
        return any(layer.experts is not None for layer in model.layers)
    layers = {id(layer): layer for layer in model.layers}.values()
    return any(name in modules_of(layer, op) for layer in layers for op in layer.operators)


def _no_order(plan: Plan, job: Job) -> str:
    return "with pp=1 a rank has its micro-batches one by one" if plan.pp == 1 else ""


def _no_message(plan: Plan, job: Job) -> str:
    return "with pp=1 no rank sends to another stage" if plan.pp == 1 else ""


def _no_parts(plan: Plan, job: Job) -> str:
    whole = plan.tp == 1 and plan.stages is None
    return _no_message(plan, job) or ("with tp=1 a message has one part" if whole else "")


def _no_context(plan: Plan, job: Job) -> str:
    return "with cp=1 every rank has whole sequences" if plan.cp == 1 else ""


def _no_gather(plan: Plan, job: Job) -> str:
    whole = not plan.zero_stage or plan.dp_shard * plan.cp == 1
    return "without ZeRO no rank gathers parameters" if whole else ""


def _no_reduction(plan: Plan, job: Job) -> str:
    if plan.stages is not None or plan.dp * plan.cp > 1:
        return ""
    return "copies of a stage are summed at once" if plan.copies > 1 else _ALONE


def _one_rank(plan: Plan, job: Job) -> str:
    return _ALONE if plan.world_size == 1 else ""  # ends of a pipeline may share a table


def _no_times(plan: Plan, job: Job) -> str:
    if plan.actions is not None:
        return f"schedule={plan.schedule} has its order already"
    if plan.pp == 1:
        return _no_order(plan, job)
    other = f"schedule={plan.schedule} does not read it; {', '.join(sorted(TIMED))} do"
    return "" if plan.schedule in TIMED else other


def _has_batch_norm(model: Model) -> bool:
    if model.graph is None:
        return False
    from parsim.model.graph.images import BatchNorm2d  # transformers need none of it

    return any(isinstance(node.operation, BatchNorm2d) for node in model.graph.nodes)


def _no_norm(plan: Plan, job: Job) -> str:
    if not _has_batch_norm(job.model):
        return f"{job.model.name} has no batch normalisation"
    return "a single replica has the whole batch" if plan.world_size == plan.tp * plan.pp else ""


def _one_axis(plan: Plan, job: Job) -> str:
    if plan.stages is not None:
        return "stages of their own have their ranks in turn"
    several = [axis for axis in plan.rank_order if plan.degree(axis) > 1]
    return "fewer than two axes have more than one rank" if len(several) < 2 else ""


_ALONE = "a single replica reduces no gradients"

_FIELDS = {"bucket_size": "bucket_bytes"}
"""Keys whose field of a plan has another name."""

_PLAN: Mapping[str, Why] = {
    "schedule": _no_order,
    "action_times": _no_times,
    "overlap_p2p": _no_message,
    "scatter_p2p": _no_parts,
    "cp_comm_type": _no_context,
    "overlap_param_gather": _no_gather,
    "overlap_grad_reduce": _no_reduction,
    "bucket_size": _no_reduction,
    "reduce_precision": _one_rank,
    "sync_batch_norm": _no_norm,
    "rank_order": _one_axis,
}
"""Keys of the plan block that may have no effect."""


def _of_training(file: ScenarioFile, job: Job) -> Iterator[str]:
    """Keys of the training and failures blocks that change nothing here."""
    given = file.training.given()
    if "precision" in given and file.search is None and file.plan is not None:
        in_plan = file.plan.given().get("precision", given["precision"])
        if in_plan != given["precision"]:
            yield _note("training.precision", f"plan.precision={in_plan} is the plan's")
    if not job.clip and not job.software.clip_bytes:
        yield _note(
            "training.clip",
            f"what software {job.software.id} takes for clipping is in its optimizer's time",
        )
    if "tokens" in given:
        return
    whole = "without training.tokens no whole run is asked for"
    for key in ("usd_per_device_hour", "pue"):
        if key in given:
            yield _note(f"training.{key}", whole)
    for key in file.failures.given():
        yield _note(f"failures.{key}", whole)


_EXPERTS = (
    *("fused_experts", "expert_dispatcher", "expert_choice", "expert_overlap"),
    "expert_imbalance",
)


def _of_software(file: ScenarioFile, job: Job, plan: Plan | None) -> Iterator[str]:
    """Switches of the stack that this model or plan has no use for."""
    given = file.software.given() if "software" in file.given() else {}
    usual = software(job.software.id)
    changed = {
        key for key in given if getattr(job.software, key, None) != getattr(usual, key, None)
    }
    mixed = any(layer.experts is not None for layer in job.model.layers)
    for key in (*_EXPERTS, "quantized_dispatch"):
        if key in changed and not mixed:
            yield _note(f"software.{key}", f"{job.model.name} has no experts")
    if "expert_choice" in changed and mixed and job.software.expert_dispatcher == "alltoall":
        yield _note("software.expert_choice", "alltoall sends a copy to each of a token's experts")
    if plan is None or file.search is not None:
        return
    if "fp8_scales" in changed and precision(plan.precision).quantization != DELAYED:
        yield _note("software.fp8_scales", f"{plan.precision} has no scales of whole tensors")
    if "tp_overlap" in changed and max(plan.stage_tp) == 1:
        yield _note("software.tp_overlap", "with tp=1 no product has a collective beside it")
