"""Megatron-LM's arguments of a plan (names of megatron-core 0.19.2, megatron/training)."""

from __future__ import annotations

from collections.abc import Iterator

from parsim.cost.software import Software, changed_switches
from parsim.cost.step.stages import plan_cut
from parsim.frameworks.export.megatron_model import Flag, model_flags, vocabulary_unsaid
from parsim.frameworks.export.megatron_rules import megatron_rules
from parsim.frameworks.export.megatron_training import (
    SHARDING,
    reduced_as_summed,
    training_flags,
    update_flags,
)
from parsim.frameworks.export.rules import (
    check_rules,
    equal_cut,
    heading,
    layers_unsaid,
    no_placement,
    transformer_of,
)
from parsim.model.transformer import TransformerSpec
from parsim.plan import REPLICAS_OUTSIDE, Plan
from parsim.scenario import Scenario


def megatron_arguments(scenario: Scenario, plan: Plan) -> str:
    """A shell file that sets `MEGATRON_ARGS`.

    Raises:
        PlanError: Megatron-LM cannot run the plan.
    """
    spec = transformer_of(scenario, "megatron")
    check_rules("megatron", plan, [*no_placement(plan), *megatron_rules(spec, plan)])
    job = scenario.job
    parallel = [*parallel_flags(spec, plan), *_switches(job.software, plan)]
    experts = expert_flags(spec, job.software, plan)
    training = [*training_flags(job.software, plan), *update_flags(job)]
    flags = [*model_flags(spec, plan), *parallel, *experts, *training]
    lines = [" ".join([name, *([] if value is True else [str(value)])]) for name, value in flags]
    return "\n".join(
        [
            "#!/usr/bin/env bash",
            *heading(scenario, plan),
            "# torchrun ... pretrain_gpt.py ${MEGATRON_ARGS[@]} and data, tokenizer, learning rate",
            *vocabulary_unsaid(spec, plan.tp),
            *(f"# {line}" for line in layers_unsaid(spec)),
            *_unsaid(plan),
            "MEGATRON_ARGS=(",
            *(f"    {line}" for line in lines),
            ")",
            "",
        ]
    )


def parallel_flags(spec: TransformerSpec, plan: Plan) -> Iterator[Flag]:
    """Degrees, virtual stages, sharding and overlap."""
    yield ("--tensor-model-parallel-size", plan.tp)
    yield ("--pipeline-model-parallel-size", plan.pp)
    yield ("--context-parallel-size", plan.cp)
    if plan.cp > 1 and plan.cp_comm_type:
        yield ("--cp-comm-type", str(plan.cp_comm_type))
    if plan.ep > 1:
        yield ("--expert-model-parallel-size", plan.ep)
    if plan.ep > 1 or plan.etp > 1:
        yield ("--expert-tensor-parallel-size", plan.etp)
    if plan.sequence_parallel:
        yield ("--sequence-parallel", True)
    yield from _stages(spec, plan)
    if plan.rank_order == REPLICAS_OUTSIDE:
        yield ("--use-tp-pp-dp-mapping", True)
    yield from _sharding(plan)
    if plan.overlap_grad_reduce:
        yield ("--overlap-grad-reduce", True)
        if plan.overlap_param_gather and plan.zero_stage:
            yield ("--overlap-param-gather", True)


def _switches(stack: Software, plan: Plan) -> Iterator[Flag]:
    """What the stack hides beside compute, and what moves tokens to experts."""
    if stack.tp_overlap and plan.tp > 1 and plan.sequence_parallel:
        yield ("--tp-comm-overlap", True)
    if plan.ep > 1 and changed_switches(stack).get("expert_overlap"):
        yield ("--overlap-moe-expert-parallel-comm", True)


def expert_flags(spec: TransformerSpec, stack: Software, plan: Plan) -> Iterator[Flag]:
    """How tokens move to experts, all of which a rank computes in one kernel.

    Megatron's defaults are to gather all tokens, and a kernel for each expert.
    """
    if not spec.num_experts:
        return
    if plan.ep > 1 and stack.expert_dispatcher != "alltoall":
        yield ("--moe-token-dispatcher-type", "flex")
        yield ("--moe-flex-dispatcher-backend", stack.expert_dispatcher)
    else:
        yield ("--moe-token-dispatcher-type", "alltoall")
    yield ("--moe-grouped-gemm", True)


def _stages(spec: TransformerSpec, plan: Plan) -> Iterator[Flag]:
    """Virtual stages, and the cut where stages differ, each said in one way only."""
    if plan.pp == 1:
        return
    if cut := layout_of(spec, plan):
        yield ("--pipeline-model-parallel-layout", f'"{cut}"')
    elif plan.v > 1:
        yield ("--num-virtual-stages-per-pipeline-rank", plan.v)
    if plan.v > 1 and not plan.overlap_p2p:
        yield ("--no-overlap-p2p-communication", True)


def layout_of(spec: TransformerSpec, plan: Plan) -> str:
    """The stages in Megatron's letters; none where all have equally many layers."""
    layers = spec.num_layers + spec.predicted_tokens
    if not spec.predicted_tokens and equal_cut(plan, layers):
        return ""
    return layout(plan, layers, spec.predicted_tokens)


def layout(plan: Plan, num_layers: int, predicted: int = 0) -> str:
    """Stages in Megatron's letters: E embedding, t a layer, L head and loss; | between.

    The last layers predict more tokens: m.
    """
    letters = "t" * (num_layers - predicted) + "m" * predicted
    stages = []
    for count in plan_cut(plan, num_layers):
        stages.append(letters[:count])
        letters = letters[count:]
    stages[0] = f"E{stages[0]}"
    stages[-1] = f"{stages[-1]}L"
    return "|".join(stages)


def _sharding(plan: Plan) -> Iterator[Flag]:
    if plan.zero_stage == 0:
        return
    yield ("--use-distributed-optimizer", True)
    if plan.zero_stage in SHARDING:
        yield ("--use-megatron-fsdp", True)
        yield ("--data-parallel-sharding-strategy", SHARDING[plan.zero_stage])
        yield ("--ckpt-format", "fsdp_dtensor")  # `validate_args` asserts it
    if plan.dp_replicate > 1:
        yield ("--num-distributed-optimizer-instances", plan.dp_replicate)
    yield from host_state_flags(plan)


def host_state_flags(plan: Plan) -> Iterator[Flag]:
    """What keeps the optimizer's states in the host's memory, and has them updated there."""
    if plan.optimizer_offload:
        yield ("--optimizer-cpu-offload", True)
        yield ("--use-precision-aware-optimizer", True)  # `validate_args` asserts it


def _unsaid(plan: Plan) -> Iterator[str]:
    """What the arguments cannot say, as comments."""
    if plan.bucket_bytes is not None:
        yield f"# buckets of {plan.bucket_bytes:.0f} bytes: --ddp-bucket-size counts parameters"
    if plan.scatter_p2p and not plan.sequence_parallel:
        yield "# scatter_p2p: Megatron scatters messages only with --sequence-parallel"
    if plan.precision in ("fp8_rowwise", "bf16_amp", "bf16_pure", "fp16_amp", "fp8_amp", "tf32"):
        yield f"# precision {plan.precision}: the flags below are the nearest; set yours"
    if plan.zero_stage in SHARDING:
        yield "# Megatron-FSDP refuses CUDA_DEVICE_MAX_CONNECTIONS=1: unset it"
    else:
        yield from reduced_as_summed(plan, "--accumulate-allreduce-grads-in-fp32")
