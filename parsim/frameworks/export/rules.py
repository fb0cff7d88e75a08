"""What every target shares: how it refuses a plan, and what it needs of one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields

from parsim.cost.job import ADAMW, CLIP, Job
from parsim.cost.step.stages import plan_cut
from parsim.errors import PlanError
from parsim.model.transformer import TransformerSpec
from parsim.plan import CpCommType, Plan
from parsim.plan.strategies import DDP
from parsim.scenario import Scenario

Rules = Iterable[tuple[bool, str]]
"""Whether a plan breaks a rule, and the message then."""


def check_rules(target: str, plan: Plan, rules: Rules) -> None:
    """Refuse a plan that breaks one of a target's rules.

    Raises:
        PlanError: the first broken rule.
    """
    for broken, message in rules:
        if broken:
            raise PlanError(f"{target} cannot run {plan.label()}: {message}")


def no_placement(plan: Plan) -> Rules:
    """Rules of every target: one kind of node, equal batches, replicas that stay one model."""
    yield (
        plan.node_order is not None or plan.replica_microbatches is not None,
        "replicas on unlike nodes with unlike batches are parsim's own; export one of equal nodes",
    )
    yield (
        plan.runs_as_tasks,
        "stages with replicas of their own and pipelines without flush are parsim's own; export a "
        "plan without stages, schedule 1f1b",
    )
    yield (
        plan.strategy != DDP,
        f"strategy {plan.strategy.label()} has no name there; export a plan of strategy ddp",
    )


def schedule_name(plan: Plan) -> str:
    """What a message calls the plan's schedule."""
    return plan.schedule if plan.actions is None else "a schedule of your own"


def no_sharded_pipeline(plan: Plan) -> tuple[bool, str]:
    """The rule of targets whose pipelines shard no gradients."""
    return (
        plan.zero_stage >= 2 and plan.pp > 1,
        f"zero_stage={plan.zero_stage} with pp={plan.pp}; with pipelines use zero_stage 0 or 1",
    )


def no_host_states(plan: Plan) -> Rules:
    """Rule of targets whose files say nothing of an optimizer on the host."""
    yield (
        plan.optimizer_offload,
        "optimizer_offload=true, which its files do not say; use megatron or deepspeed, or "
        "optimizer_offload=false",
    )


def no_layers(plan: Plan) -> Rules:
    """Rules of targets that treat all layers of a stage alike: none moves, none repeats more."""
    yield (
        plan.offload_layers > 0,
        f"offload_layers={plan.offload_layers}; it has no switch that moves activations to the "
        f"host, use offload_layers=0",
    )
    yield (
        plan.recompute_layers > 0,
        f"recompute_layers={plan.recompute_layers}; it has no switch that recomputes some layers "
        f"of a stage, use recompute=none, selective or full",
    )


def whole_heads(scenario: Scenario, plan: Plan, why: str) -> tuple[bool, str]:
    """The rule of targets whose tensor-parallel ranks are no more than the key-value heads."""
    attention = scenario.job.model.attention
    heads = plan.tp if attention is None else attention.kv_heads
    return (
        plan.tp > heads,
        f"tp={plan.tp} is more than num_key_value_heads={heads}, and {why}; use tp of at most "
        f"{heads}",
    )


def torchs_context(plan: Plan) -> tuple[bool, str]:
    """The rule of targets whose context parallelism is torch's own."""
    return (
        plan.cp > 1 and plan.cp_comm_type is CpCommType.A2A,
        "cp_comm_type=a2a; torch's context parallelism gathers keys and values or sends them round",
    )


WITH_ADAPTERS = ("megatron-bridge",)
"""Targets of transformers that train LoRA adapters themselves."""

PEFT_NAMES: Mapping[str, tuple[str, ...]] = {
    "linear_qkv": ("q_proj", "k_proj", "v_proj"),
    "linear_proj": ("o_proj",),
    "linear_fc1": ("gate_proj", "up_proj"),
    "linear_fc2": ("down_proj",),
    "linear_q_down_proj": ("q_a_proj",),
    "linear_q_up_proj": ("q_b_proj",),
    "linear_kv_down_proj": ("kv_a_proj_with_mqa",),
    "linear_kv_up_proj": ("kv_b_proj",),
    "in_proj": ("in_proj",),
    "out_proj": ("out_proj",),
}
"""What Hugging Face's Llama and its kin call the products of `lora_targets`."""


def transformer_of(scenario: Scenario, target: str) -> TransformerSpec:
    """The sizes of the scenario's transformer.

    Raises:
        PlanError: its model is another kind.
    """
    if not isinstance(scenario.model, TransformerSpec):
        raise PlanError(f"{target} trains transformers; {scenario.job.model.name} is none")
    if scenario.model.lora_rank and target not in WITH_ADAPTERS:
        raise PlanError(
            f"{target} has no adapters for lora_rank={scenario.model.lora_rank}; export to "
            f"{' or '.join(WITH_ADAPTERS)}, or to deepspeed or accelerate beside PEFT"
        )
    return scenario.model


def optimizer_unsaid(job: Job) -> Iterator[str]:
    """A target's file leaves another optimizer than the usual one to the user's code."""
    if job.optimizer != ADAMW:
        yield f"training.optimizer {job.optimizer.name}: make it in your code"


def clip_unsaid(job: Job) -> Iterator[str]:
    """A target's file leaves another norm of gradients than the usual one to the user's code."""
    if job.clip != CLIP:
        yield f"training.clip {job.clip:g}: clip gradients so in your code (0: not at all)"


def adapters_unsaid(spec: TransformerSpec) -> Iterator[str]:
    """A target's file leaves adapters to the user's code, which wraps the model."""
    if not spec.lora_rank:
        return
    products = [name for target in spec.lora_targets for name in PEFT_NAMES[target]]
    targets = ", ".join(map(repr, products)) if products else "'all-linear'"
    listed = f"[{targets}]" if products else targets
    saved = ", ".join(map(repr, spec.modules_to_save))
    beside = f", modules_to_save=[{saved}]" if saved else ""
    yield (
        f"model.lora_rank {spec.lora_rank}: wrap the model by peft.get_peft_model with "
        f"LoraConfig(r={spec.lora_rank}, target_modules={listed}{beside})"
    )


def model_unsaid(spec: TransformerSpec) -> Iterator[str]:
    """What a target's file leaves to the user's model of how attention works."""
    if not spec.fused_attention:
        yield "model.fused_attention false: choose unfused attention in the model"
    if spec.window:
        every = spec.full_every
        layers = f"all layers but one in {every}" if every else "all layers"
        yield f"model.window {spec.window} in {layers}: the model's own setting must say it"
    if spec.sample_length:
        yield f"model.sample_length {spec.sample_length}: pack samples in your data"
    yield from layers_unsaid(spec)


_OF_LAYERS = (
    *("norms_after", "offset_norms", "activation", "embedding_norm", "parallel_block", "alibi"),
    *("embedding_scale", "residual_scale", "attention_scale", "logit_scale", "attention_cap"),
    *("logit_cap", "rope_interleaved", "window_rope_theta", "unrotated_every", "first_position"),
)
_USUAL = {field.name: field.default for field in fields(TransformerSpec)}


def layers_unsaid(spec: TransformerSpec) -> Iterator[str]:
    """What no target has a word for: angles of rotary embeddings, what layers scale and cap."""
    for name in _OF_LAYERS:
        value = getattr(spec, name)
        if value != _USUAL[name]:
            shown_value = str(value).lower() if isinstance(value, bool) else value
            yield f"model.{name} {shown_value}: the model's own layer must have it"
    if spec.rope_head_dim and not spec.kv_lora_rank:
        share = f"{spec.rope_head_dim} of head_dim {spec.head_dim}"
        yield f"model.rope_head_dim {share}: the model's own setting must say it"
    if spec.rope_scaling != "none":
        yield f"model.rope_scaling {spec.rope_scaling}: the model's own setting must say it"


def equal_cut(plan: Plan, layers: int) -> bool:
    """Whether all stages have equally many layers."""
    return len(set(plan_cut(plan, layers))) == 1


def heading(scenario: Scenario, plan: Plan, mark: str = "#") -> list[str]:
    """Comment lines that say what a file is of."""
    job = scenario.job
    tokens = job.model.tokens
    kind = f"sequences of {tokens} tokens" if tokens > 1 else "samples"
    return [
        f"{mark} {job.model.name} on {job.cluster.words}: {plan.label()}",
        f"{mark} global batch {plan.global_batch_size} {kind}; written by parsim export",
    ]
