"""Megatron-LM's arguments of a plan's batches, precisions, memory and update."""

from __future__ import annotations

from collections.abc import Iterator

from parsim.cost.job import ADAMW, CLIP, Job
from parsim.cost.software import Software
from parsim.frameworks.export.megatron_model import Flag
from parsim.plan import Plan, Recompute

SHARDING = {2: "optim_grads", 3: "optim_grads_params"}
FP8 = {"fp8_rowwise": "tensorwise", "mxfp8": "mxfp8"}
"""--fp8-recipe of precisions; Megatron has no row-wise one, the nearest is a scale a tensor."""
SCALES = {"delayed": "delayed", "current": "tensorwise"}
"""--fp8-recipe of fp8 with one scale a tensor, by the stack's `fp8_scales`."""
FP4 = ("nvfp4", "mxfp4")

SGD_MOMENTUM = {"sgd": 0, "sgd_momentum": 0.9}
"""--sgd-momentum of each optimizer that is not Adam."""


def training_flags(stack: Software, plan: Plan) -> Iterator[Flag]:
    """Batches, precisions, and what is computed again or kept on the host."""
    yield ("--micro-batch-size", plan.microbatch_size)
    yield ("--global-batch-size", plan.global_batch_size)
    if plan.precision in ("fp16", "fp16_amp"):
        yield ("--fp16", True)
    elif plan.precision not in ("fp32", "tf32"):
        yield ("--bf16", True)
    if plan.precision.startswith(("fp8", "mxfp8")):
        yield ("--fp8-format", "hybrid")
        yield ("--fp8-recipe", FP8.get(plan.precision, SCALES[stack.fp8_scales]))
    if plan.precision in FP4:
        yield ("--fp4-format", "e2m1")
        if plan.precision == "mxfp4":  # of Megatron-LM on ROCm; nvfp4 is the default
            yield ("--fp4-recipe", "mxfp4")
    yield from _gradients(plan)
    yield from recompute_flags(plan)
    yield from offload_flags(plan)


def update_flags(job: Job) -> Iterator[Flag]:
    """How parameters are updated: Megatron's defaults are Adam and gradients clipped to 1."""
    if job.optimizer != ADAMW:
        yield ("--optimizer", "sgd")
        yield ("--sgd-momentum", SGD_MOMENTUM[job.optimizer.name])
    if job.clip != CLIP:
        yield ("--clip-grad", job.clip)


def _gradients(plan: Plan) -> Iterator[Flag]:
    """The precision of the buffer in which gradients are summed and from which they are sent.

    With --bf16 Megatron takes fp32 unless it is told --grad-reduce-in-bf16 (`validate_args`).
    """
    if plan.gradient_precision == "fp32":
        yield ("--accumulate-allreduce-grads-in-fp32", True)
    elif plan.precision not in ("fp32", "tf32", "fp16", "fp16_amp"):
        yield ("--grad-reduce-in-bf16", True)
    if plan.zero_stage in SHARDING and _two_widths(plan):
        kinds = {"fp32": "fp32", "same": "fp16" if plan.precision[:4] == "fp16" else "bf16"}
        yield ("--megatron-fsdp-main-grads-dtype", kinds[plan.gradient_precision])
        yield ("--megatron-fsdp-grad-comm-dtype", kinds[plan.reduce_precision])


def _two_widths(plan: Plan) -> bool:
    """Whether gradients are sent in another precision than they are summed in."""
    whole = plan.precision in ("fp32", "tf32")
    return not whole and plan.gradient_precision != plan.reduce_precision


def reduced_as_summed(plan: Plan, flag: str) -> Iterator[str]:
    """A comment where a plan has two precisions of gradients and Megatron's buffer has only one."""
    if _two_widths(plan):
        yield f"# reduce_precision {plan.reduce_precision}: {flag} is for"
        yield f"# sums and reductions of gradients alike, here {plan.gradient_precision}"


def offload_flags(plan: Plan) -> Iterator[Flag]:
    """What is kept in the host's memory between forward and backward."""
    if plan.offload_modules:
        yield ("--fine-grained-activation-offloading", True)
        yield ("--offload-modules", " ".join(plan.offload_modules))
    elif plan.offload_layers:
        yield ("--cpu-offloading", True)
        yield ("--cpu-offloading-num-layers", plan.offload_layers)


def recompute_flags(plan: Plan) -> Iterator[Flag]:
    """What is computed again in backward."""
    if plan.recompute is Recompute.FULL or plan.recompute_layers:
        yield ("--recompute-granularity", "full")
        yield ("--recompute-method", "block" if plan.recompute_layers else "uniform")
        yield ("--recompute-num-layers", plan.recompute_layers or 1)
        return
    modules = list(plan.recompute_modules)
    if plan.recompute is Recompute.SELECTIVE and "core_attn" not in modules:
        modules.insert(0, "core_attn")
    if modules:
        yield ("--recompute-granularity", "selective")
        yield ("--recompute-modules", " ".join(modules))
