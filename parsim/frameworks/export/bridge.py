"""Megatron-Bridge's overrides of a plan, as arguments of its recipes (names of 0.6.2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from parsim.cost.job import Job
from parsim.cost.software import Software
from parsim.errors import PlanError
from parsim.frameworks.export.megatron import expert_flags, host_state_flags, layout_of
from parsim.frameworks.export.megatron_model import Flag
from parsim.frameworks.export.megatron_rules import megatron_rules
from parsim.frameworks.export.megatron_training import (
    SHARDING,
    offload_flags,
    recompute_flags,
    reduced_as_summed,
    update_flags,
)
from parsim.frameworks.export.rules import (
    check_rules,
    heading,
    model_unsaid,
    no_placement,
    transformer_of,
)
from parsim.model.adapters import targets_of
from parsim.model.transformer import TransformerSpec, build_transformer
from parsim.plan import Plan
from parsim.scenario import Scenario

KINDS = {"fp32": "float32", "tf32": "float32", "fp16": "float16", "fp16_amp": "float16"}
"""The type that stages send, of precisions that do not send bfloat16."""
MIXED = {
    name: f"mixed_precision={recipe} in the recipe"
    for name, recipe in {
        "bf16": "bf16_mixed",
        "fp16": "fp16_mixed",
        "mxfp8": "bf16_with_mxfp8_mixed",
        "nvfp4": "bf16_with_nvfp4_mixed",
    }.items()
}
SCALED = "mixed_precision=bf16_with_fp8_{}_scaling_mixed in the recipe"
"""What fp8 needs there, by the stack's `fp8_scales`."""
NO_MIXED = "no mixed_precision of Megatron-Bridge is that; set the recipe's nearest"


def bridge_overrides(scenario: Scenario, plan: Plan) -> str:
    """Lines `block.field=value`, one an override.

    Raises:
        PlanError: Megatron-Bridge cannot run the plan.
    """
    spec = transformer_of(scenario, "megatron-bridge")
    _check(spec, plan)
    return "\n".join(
        [
            *heading(scenario, plan),
            "# overrides of a recipe of the model, e.g. behind `torchrun ... recipe.py`",
            *reduced_as_summed(plan, "ddp.grad_reduce_in_fp32"),
            *(f"# {line}" for line in model_unsaid(spec)),
            *_precision_of_a_recipe(scenario.job.software, plan),
            *(f"{name}={value}" for name, value in _values(scenario.job, spec, plan)),
            "",
        ]
    )


def _check(spec: TransformerSpec, plan: Plan) -> None:
    """Refuse what Megatron-Bridge cannot run."""
    check_rules("megatron-bridge", plan, [*no_placement(plan), *megatron_rules(spec, plan)])
    if spec.modules_to_save:
        raise PlanError(
            "megatron-bridge freezes embedding and head beside adapters; export modules_to_save to "
            "deepspeed or accelerate beside PEFT"
        )


def _values(job: Job, spec: TransformerSpec, plan: Plan) -> Iterator[tuple[str, object]]:
    """All overrides, block by block."""
    yield from _model(spec, plan)
    yield from _named("model", expert_flags(spec, job.software, plan))
    yield from _training(plan)
    yield from _named("optimizer", (*update_flags(job), *host_state_flags(plan)))
    yield from _adapters(spec)


def _model(spec: TransformerSpec, plan: Plan) -> Iterator[tuple[str, object]]:
    yield ("model.tensor_model_parallel_size", plan.tp)
    yield ("model.pipeline_model_parallel_size", plan.pp)
    if plan.pp > 1 and (cut := layout_of(spec, plan)):
        yield ("model.pipeline_model_parallel_layout", cut)
    elif plan.v > 1:
        yield ("model.virtual_pipeline_model_parallel_size", plan.v)
    if plan.pp > 1:
        yield ("model.pipeline_dtype", KINDS.get(plan.precision, "bfloat16"))
        yield ("model.overlap_p2p_comm", _word(plan.overlap_p2p and plan.v > 1))
    yield ("model.context_parallel_size", plan.cp)
    if plan.cp > 1 and plan.cp_comm_type:
        yield ("model.cp_comm_type", str(plan.cp_comm_type))
    yield ("model.expert_model_parallel_size", plan.ep)
    if plan.ep > 1 or plan.etp > 1:
        yield ("model.expert_tensor_parallel_size", plan.etp)
    yield ("model.sequence_parallel", _word(plan.sequence_parallel))
    yield ("model.seq_length", spec.seq_len)
    yield from _named("model", (*recompute_flags(plan), *offload_flags(plan)))


def _named(block: str, flags: Iterable[Flag]) -> Iterator[tuple[str, object]]:
    """Flags of Megatron-LM as fields of a block."""
    for flag, value in flags:
        name = flag.removeprefix("--").replace("-", "_")
        listed = f"[{','.join(str(value).split())}]" if name.endswith("modules") else value
        yield (f"{block}.{name}", _word(True) if value is True else listed)


def _training(plan: Plan) -> Iterator[tuple[str, object]]:
    yield ("train.micro_batch_size", plan.microbatch_size)
    yield ("train.global_batch_size", plan.global_batch_size)
    yield ("ddp.use_distributed_optimizer", _word(plan.zero_stage > 0))
    if plan.zero_stage in SHARDING:
        yield ("ddp.use_megatron_fsdp", "true")
        yield ("ddp.data_parallel_sharding_strategy", SHARDING[plan.zero_stage])
        yield ("checkpoint.ckpt_format", "fsdp_dtensor")
    if plan.zero_stage and plan.dp_replicate > 1:
        yield ("ddp.num_distributed_optimizer_instances", plan.dp_replicate)
    yield ("ddp.grad_reduce_in_fp32", _word(plan.gradient_precision == "fp32"))
    yield ("ddp.overlap_grad_reduce", _word(plan.overlap_grad_reduce))
    gathers = plan.overlap_param_gather and plan.overlap_grad_reduce and plan.zero_stage > 0
    yield ("ddp.overlap_param_gather", _word(gathers))


def _adapters(spec: TransformerSpec) -> Iterator[tuple[str, object]]:
    """Fields of LoRA, which a fine-tuning recipe has as its `peft`; its `alpha` stays."""
    if spec.lora_rank:
        yield ("peft.dim", spec.lora_rank)
        targets = spec.lora_targets or targets_of(build_transformer(spec).kinds)
        yield ("peft.target_modules", f"[{','.join(targets)}]")


def _precision_of_a_recipe(stack: Software, plan: Plan) -> Iterator[str]:
    """Comments on recipes: what their mixed precision must be, which overwrites the reduction's."""
    mixed = {**MIXED, "fp8": SCALED.format(stack.fp8_scales)}
    yield f"# precision {plan.precision}: {mixed.get(plan.precision, NO_MIXED)}"
    if plan.gradient_precision != "fp32":
        yield "# a recipe's mixed_precision overwrites ddp.grad_reduce_in_fp32 (true in most): set"
        yield "# mixed_precision.grad_reduce_in_fp32=false too"


def _word(value: bool) -> str:
    return "true" if value else "false"
