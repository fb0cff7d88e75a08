"""Which plans a job may have: the rules of all plans, its batch, and its software's own rules."""

from __future__ import annotations

from parsim.cost.job import Job
from parsim.cost.step.offload import no_host
from parsim.errors import PlanError
from parsim.plan import CpCommType, Plan, Recompute
from parsim.plan.names import REGION_MODULES
from parsim.plan.rules.batch import wrong_batch
from parsim.plan.rules.degrees import goes_with, heads_shared_out, listed, tensor_degrees
from parsim.plan.rules.executor.runnable import uncompilable, unrunnable
from parsim.plan.rules.violation import violation


def illegal(job: Job, plan: Plan) -> str | None:
    """The first broken rule's message, or None for a legal plan."""
    message = violation(plan, job.model, job.cluster)
    if message is None and job.global_batch_size is not None:
        message = wrong_batch(plan, job.global_batch_size)
    if message is None:
        message = unsupported(job, plan) or uneven_cut(job, plan)
    if message is None and plan.recompute_layers:
        message = whole_stages(job, plan)
    if message is None:
        message = region_modules(job, plan)
    if message is None and plan.offload_layers:
        message = _offload(job, plan)
    if message is None:
        message = states_on_host(job, plan)
    return unrun(job, plan) if message is None else message


def unsupported(job: Job, plan: Plan) -> str | None:
    """What of a plan's degrees and micro-batches the job's software does not run; or None."""
    return unheld_heads(job, plan) or _unaccumulated(job, plan) or _packed_together(job, plan)


def unheld_heads(job: Job, plan: Plan) -> str | None:
    """Why the job's software does not share heads out over so many ranks, or None."""
    return _swapped_heads(job, plan) or _whole_heads(job, plan)


def _whole_heads(job: Job, plan: Plan) -> str | None:
    """Why it does not run so many tensor-parallel ranks on fewer key-value heads, or None."""
    attention, stack = job.model.attention, job.software
    if attention is None or stack.kv_heads != "whole":
        return None
    tp = max(plan.tp, *plan.stage_tp)
    if tp <= attention.kv_heads:
        return None
    allowed = [degree for degree in tensor_degrees(job.model) if degree <= attention.kv_heads]
    return (
        f"tp={tp} with num_key_value_heads={attention.kv_heads}: {stack.id} keeps each key-value "
        f"head on one rank; allowed: {listed(allowed)}, or a software that copies or gathers heads "
        f"(parsim catalog software)"
    )


def uneven_cut(job: Job, plan: Plan) -> str | None:
    """Why the job's software does not cut the model into so many stages, or None.

    A cut that a plan states is its own affair: first and last stages may have sizes of their own.
    """
    cut = plan.stage_layers is not None or plan.stages
    if not job.software.even_cut or plan.pp == 1 or cut:
        return None
    layers, stages = job.model.num_layers, plan.num_stages
    if any((layers + ends) % stages == 0 for ends in (0, 1, 2)):
        return None
    return (
        f"pp={plan.pp} x v={plan.v} = {stages} stages of {layers} layers: {job.software.id} gives "
        f"every stage as many, embedding and head each counted as a layer or not; use pp and v "
        f"that divide {layers} to {layers + 2}, or stage_layers"
    )


def _unaccumulated(job: Job, plan: Plan) -> str | None:
    """Why it does not run several micro-batches a step without a pipeline, or None."""
    if job.software.accumulates or plan.pp > 1 or plan.num_microbatches == 1:
        return None
    return (
        f"num_microbatches={plan.num_microbatches} without a pipeline: {job.software.id} of that "
        f"time adds no gradients of micro-batches up; use num_microbatches=1"
    )


def _packed_together(job: Job, plan: Plan) -> str | None:
    """Why it does not run so many packed sequences in one micro-batch, or None."""
    attention, stack = job.model.attention, job.software
    if stack.packs_together or plan.microbatch_size == 1:
        return None
    if attention is None or attention.sample is None:
        return None
    return (
        f"microbatch_size={plan.microbatch_size} of packed samples: {stack.id} runs packed "
        f"sequences one by one; use microbatch_size=1"
    )


def _swapped_heads(job: Job, plan: Plan) -> str | None:
    """Why all-to-alls that the software has by itself do not share heads out; or None.

    Those that a plan names are a rule of all plans. Software that copies heads of keys and values
    has as many as ranks need.
    """
    if plan.cp == 1 or plan.cp_comm_type or job.software.cp_comm_type is not CpCommType.A2A:
        return None
    attention, ranks = job.model.attention, plan.tp * plan.cp
    if job.software.kv_heads == "copied" and attention is not None:
        copied = goes_with(ranks, attention.kv_heads) and attention.heads % ranks == 0
        return None if copied else heads_shared_out(plan, job.model)
    return heads_shared_out(plan, job.model)


def unrun(job: Job, plan: Plan) -> str | None:
    """Why parsim's executor, where that is the software, does not run a plan; or None."""
    if not job.software.executor:
        return None
    message = unrunnable(plan, job.model)
    if message is None and job.software.compile:
        return uncompilable(plan, job.model)
    return message


def whole_stages(job: Job, plan: Plan) -> str | None:
    """Why a stack that checkpoints whole stages recomputes no part of their layers; or None."""
    if not job.software.checkpoints_stages:
        return None
    return (
        f"recompute_layers={plan.recompute_layers}: {job.software.id} recomputes whole stages; use "
        f"recompute=none or full"
    )


def region_modules(job: Job, plan: Plan) -> str | None:
    """Why a stack without regions of a compiler repeats no part that only these repeat; or None."""
    named = [name for name in plan.recompute_modules if name in REGION_MODULES]
    if not named or job.software.recompute_region:
        return None
    return (
        f"recompute_modules={'+'.join(named)}: {job.software.id} checkpoints each module by itself "
        f"and keeps what enters the next one; only compilers repeat it (software: maxtext)"
    )


def _offload(job: Job, plan: Plan) -> str | None:
    """What of the job keeps a plan from moving activations to the host."""
    lacking = next(filter(None, map(no_host, job.cluster.systems)), None)
    if lacking is not None:
        return lacking
    halves = plan.recompute is Recompute.SELECTIVE and job.software.selective == "half-products"
    if plan.offload_modules and halves:
        return (
            f"offload_modules={'+'.join(plan.offload_modules)}: with recompute=selective "
            f"{job.software.id} keeps every second product's output and no module's input; leave "
            f"offload_modules out, or use recompute=none"
        )
    return None


def states_on_host(job: Job, plan: Plan) -> str | None:
    """What of the job keeps a plan with `optimizer_offload` from updating on its hosts; or None."""
    if not plan.optimizer_offload:
        return None
    asked = "optimizer_offload=true"
    if job.mixed:
        return f"{asked} is priced on nodes of one kind alone; use optimizer_offload=false"
    system = job.system
    if system.on_cpu:
        return f"{asked}: the devices of {system.id} are their hosts; leave it out"
    if system.host_bandwidth is None:
        return (
            f"{asked}: system {system.id} says nothing of its host's memory, which the update "
            f"is limited by; write its host_bandwidth, or leave it out"
        )
    if message := no_host(system, asked):
        return message
    if job.software.fp32_shards and plan.zero_stage >= 3:
        return (
            f"{asked} with zero_stage={plan.zero_stage}: shards of {job.software.id} are the fp32 "
            f"parameters themselves, which it would have to move too; use zero_stage 0, 1 or 2"
        )
    return None


def check_legal(job: Job, plan: Plan) -> None:
    """Raise PlanError unless the plan is legal for this job."""
    message = illegal(job, plan)
    if message is not None:
        raise PlanError(message)
