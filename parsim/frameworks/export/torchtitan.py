"""torchtitan's configuration of a plan: one Python function (0.3.0), or TOML before (0.2.2).

Rules: it shards (FSDP) or replicates (DDP), so ZeRO-2 or 3 without a pipeline and ZeRO-1 with one;
ranks of a sequence always share parameters; 16-bit products with tensor or pipeline parallelism
need FSDP; expert parallelism borrows from dp_shard x cp x tp.
"""

from __future__ import annotations

from collections.abc import Iterator

from parsim.cost.job import CLIP
from parsim.cost.software import Software
from parsim.frameworks.export.rules import (
    Rules,
    check_rules,
    clip_unsaid,
    equal_cut,
    heading,
    model_unsaid,
    no_host_states,
    no_layers,
    no_placement,
    optimizer_unsaid,
    schedule_name,
    torchs_context,
    transformer_of,
    whole_heads,
)
from parsim.frameworks.torch_schedules import CHUNKED, TORCH_SCHEDULES, USUAL_CHUNKS
from parsim.plan import RANK_ORDER, Plan, Recompute
from parsim.scenario import Scenario

RELEASE = "0.3.0"
"""The release whose names are written."""
RECOMPUTATION = {
    Recompute.NONE: "None",
    Recompute.SELECTIVE: "SelectiveAC.Config()",
    Recompute.FULL: "FullAC.Config()",
}
"""Its configuration of what is repeated in backward."""


def torchtitan_python(scenario: Scenario, plan: Plan) -> str:
    """A Python module with a function `config` that returns `Trainer.Config`.

    Raises:
        PlanError: torchtitan cannot run the plan.
    """
    transformer_of(scenario, "torchtitan")
    heads = whole_heads(scenario, plan, "it shares out whole heads (pull request 2577)")
    check_rules(
        "torchtitan",
        plan,
        [*no_placement(plan), *no_layers(plan), *no_host_states(plan), heads, *rules(plan)],
    )
    return "\n".join([*_header(scenario, plan), *_function(scenario, plan), ""])


def _header(scenario: Scenario, plan: Plan) -> Iterator[str]:
    """Comments and imports above the function."""
    yield from heading(scenario, plan)
    yield f"# for torchtitan {RELEASE}; for the TOML of 0.2: --to torchtitan-0.2"
    yield "# MODULE=<this module> CONFIG=config NGPU=<devices of a node> ./run_train.sh"
    yield from unsaid(scenario, plan)
    yield "from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig"
    yield "from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC"
    yield ""
    yield "# put your model's function here: torchtitan.models.llama3.config_registry has Llama 3's"
    yield "from torchtitan.models.llama3.config_registry import llama3_8b as model_config"
    yield from ("", "")


def _function(scenario: Scenario, plan: Plan) -> Iterator[str]:
    """The function that sets of a model's configuration what the plan says."""
    job, clip = scenario.job, scenario.job.clip
    yield "def config():"
    yield "    config = model_config()"
    yield "    config.training = TrainingConfig("
    sequences = local_batch(plan)
    yield f"        local_batch_size={sequences},  # sequences of a data-parallel rank at a time"
    yield f"        global_batch_size={plan.global_batch_size},"
    yield f"        seq_len={job.model.tokens},"
    if says_clip(clip):
        yield f"        max_norm={clip!r},"
    yield f"        mixed_precision_param={titan_param(plan)!r},"
    yield f"        mixed_precision_reduce={titan_reduce(plan)!r},"
    yield "    )"
    yield "    config.parallelism = ParallelismConfig("
    for name, value in parallelism(plan, job.model.num_layers):
        yield f"        {name}={value!r},"
    yield "    )"
    yield f"    config.compile = CompileConfig({_arguments(compiling(job.software, plan))})"
    yield f"    config.activation_checkpoint = {RECOMPUTATION[plan.recompute]}"
    yield "    return config"


def rules(plan: Plan) -> Rules:
    """What any of its releases refuses."""
    yield from _pipeline_rules(plan)
    yield (
        plan.precision.startswith("fp16") or plan.precision == "bf16_pure",
        f"precision={plan.precision}; it has bfloat16 and float32, over parameters in float32",
    )
    yield (plan.etp not in (1, plan.tp), f"etp={plan.etp}; it has 1, or tp={plan.tp}")
    yield torchs_context(plan)
    yield from _unsharded_rules(plan)
    shards = (plan.dp_shard if plan.zero_stage else 1) * plan.cp * plan.tp
    yield (
        shards % plan.ep != 0,
        f"ep={plan.ep} does not divide dp_shard x cp x tp = {shards}, from which it borrows ranks",
    )
    yield (
        plan.rank_order != RANK_ORDER,
        f"rank_order={'-'.join(plan.rank_order)}; its mesh is {'-'.join(RANK_ORDER)}",
    )


def _pipeline_rules(plan: Plan) -> Rules:
    """Which schedules it has, and what it shards with a pipeline and without one."""
    named = schedule_name(plan)
    yield (
        plan.pp > 1 and plan.actions is None and plan.schedule not in TORCH_SCHEDULES,
        f"schedule {named}; it has {', '.join(TORCH_SCHEDULES)}, and files of actions",
    )
    yield (
        plan.zero_stage == 1 and plan.pp == 1,
        "zero_stage=1; it replicates (0) or shards with FSDP, which lets parameters go (3) or "
        "keeps them gathered (2)",
    )
    yield (
        plan.zero_stage >= 2 and plan.pp > 1,
        f"zero_stage={plan.zero_stage} with pp={plan.pp}; it replicates (0), or its FSDP keeps "
        "gradients whole until a pipeline's last micro-batch (1)",
    )


def _unsharded_rules(plan: Plan) -> Rules:
    """What it does under FSDP alone."""
    yield (
        plan.zero_stage == 0 and plan.cp > 1,
        f"zero_stage=0 with cp={plan.cp}; its FSDP shards over dp_shard x cp, use zero_stage "
        f"{'1' if plan.pp > 1 else '2 or 3'}",
    )
    yield (
        plan.zero_stage == 0 and plan.tp * plan.pp > 1 and titan_param(plan) != "float32",
        f"precision={plan.precision} with zero_stage=0; with tensor or pipeline parallelism it "
        "computes in 16 bits under FSDP alone (maybe_enable_amp), use another zero_stage or fp32",
    )


def parallelism(plan: Plan, layers: int) -> Iterator[tuple[str, object]]:
    """The keys of its block of degrees; `layers` are the model's."""
    yield ("data_parallel_replicate_degree", plan.dp_replicate)
    yield ("data_parallel_shard_degree", plan.dp_shard)
    if plan.zero_stage:  # the default is never with a pipeline, else always
        yield ("fsdp_reshard_after_forward", "always" if plan.zero_stage == 3 else "never")
    yield ("tensor_parallel_degree", plan.tp)
    if plan.tp > 1:
        yield ("enable_sequence_parallel", plan.sequence_parallel)
    yield ("context_parallel_degree", plan.cp)
    if plan.ep > 1:
        yield ("expert_parallel_degree", plan.ep)
    yield ("pipeline_parallel_degree", plan.pp)
    if plan.pp > 1:
        if plan.actions is not None:
            yield ("pipeline_parallel_schedule", "PipelineScheduleMulti")
            yield ("pipeline_parallel_schedule_csv", plan.schedule)
        else:
            yield ("pipeline_parallel_schedule", TORCH_SCHEDULES[plan.schedule])
            yield from _stages(plan, layers)
        yield ("pipeline_parallel_microbatch_size", plan.microbatch_size)


def _stages(plan: Plan, layers: int) -> Iterator[tuple[str, object]]:
    """How many layers each stage has, where chunks are as equal and other than its own two.

    It takes embedding and head for so many layers of the first and last stage.
    """
    if says_chunks(plan, layers):
        yield ("pipeline_parallel_layers_per_stage", layers // plan.num_stages)
        yield ("pipeline_parallel_first_stage_less_layers", 0)
        yield ("pipeline_parallel_last_stage_less_layers", 0)


def says_chunks(plan: Plan, layers: int) -> bool:
    """Whether a file says the chunks of a rank: of schedules that have any number of them."""
    others = plan.schedule in CHUNKED and plan.v != USUAL_CHUNKS
    return others and equal_cut(plan, layers) and layers % plan.num_stages == 0


def compiled(stack: Software) -> bool:
    """Whether what was predicted has layers compiled: its switch, or kernels fused otherwise."""
    return stack.compile or not stack.eager_traffic


def overlaps(stack: Software, plan: Plan) -> bool:
    """Whether products run beside their collectives, which needs compiled layers."""
    return compiled(stack) and stack.tp_overlap and plan.tp > 1 and plan.sequence_parallel


def compiling(stack: Software, plan: Plan) -> Iterator[tuple[str, object]]:
    """The keys of its block of torch.compile, which is off where nothing is said."""
    yield ("enable", compiled(stack))
    if overlaps(stack, plan):
        yield ("enable_async_tensor_parallel", True)


def _arguments(values: Iterator[tuple[str, object]]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in values)


def local_batch(plan: Plan) -> int:
    """Sequences that a data-parallel rank takes at a time: those of a whole pipeline's step."""
    return plan.microbatch_size if plan.pp == 1 else plan.global_batch_size // plan.dp


def titan_param(plan: Plan) -> str:
    """Say in torch's words the type that parameters are gathered and used in."""
    return "float32" if plan.precision in ("fp32", "tf32") else "bfloat16"


def titan_reduce(plan: Plan) -> str:
    """Say in torch's words the type that gradients are reduced in."""
    return "float32" if plan.reduce_precision == "fp32" else titan_param(plan)


def says_clip(clip: float) -> bool:
    """Whether a file says the norm that gradients are clipped to: another than the default."""
    return clip not in (0, CLIP)


def unsaid(scenario: Scenario, plan: Plan) -> Iterator[str]:
    """Comment lines of what a file of torchtitan cannot say of a plan."""
    job, layers = scenario.job, scenario.job.model.num_layers
    clip = () if says_clip(job.clip) else clip_unsaid(job)
    model = model_unsaid(transformer_of(scenario, "torchtitan"))
    yield from (f"# {line}" for line in (*model, *optimizer_unsaid(job), *clip))
    if plan.precision == "tf32":
        yield "# precision tf32: torch.set_float32_matmul_precision('high')"
    if plan.pp > 1 and not says_chunks(plan, layers):
        cut = "equal stages" if equal_cut(plan, layers) else f"stages of {plan.stage_layers}"
        yield f"# {cut}, v={plan.v}: torchtitan derives its own from the schedule; to fix them set"
        yield "# parallelism.module_fqns_per_model_part or pipeline_parallel_layers_per_stage"
    if plan.pp == 1 and plan.num_microbatches > 1:
        yield f"# {plan.num_microbatches} accumulated micro-batches follow from the two batch sizes"
    if plan.recompute_modules:
        yield f"# recompute_modules {', '.join(plan.recompute_modules)}: subclass SelectiveAC"
    if plan.precision.startswith(("fp8", "mxfp8", "nvfp4", "mxfp4")):
        yield f"# precision {plan.precision}: a converter of torchtitan.components.quantization"
