"""Models and kernels of `same_numbers`: recomputation, precision, software, models, experts."""

from __future__ import annotations

from tests.tools.same_numbers.group import (
    EVENTS,
    FP8,
    HYBRID,
    JITTER,
    L8,
    LINKS,
    PLAIN,
    QWEN,
    SEARCH,
    SIXTEEN,
    TEXT,
    Group,
    each,
    named,
    plan,
)

MODULES = ("core_attn", "layernorm", "mlp", "core_attn, layernorm, mlp")
RECOMPUTE = {
    **named(
        recompute={"none": "none", "selective": "selective", "full": "full"},
        sequence_parallel={"plain": "false", "sp": "true"},
    ),
    **{f"modules-{part}": f"plan.recompute_modules=[{part}]" for part in MODULES},
}
PRECISIONS = (
    "fp32",
    "tf32",
    "bf16",
    "fp16",
    "bf16_amp",
    "fp8",
    "fp8_rowwise",
    "fp8_amp",
    "mxfp8",
    "nvfp4",
)
SOFTWARE = (
    "generic",
    "executor-cpu",
    "executor-cuda",
    "megatron-2021",
    "megatron-2022",
    "megatron-deepspeed-2022",
    "megatron-deepspeed-vtrain",
    "megatron-deepspeed-2023",
    "deepspeed-zero3-2021",
    "deepspeed-zero3",
    "deepspeed-huggingface-2021",
    "deepspeed-huggingface",
    "mpt-fsdp-2023",
    "nemo",
    "megatron-bridge",
    "megatron-bridge-26.06",
    "megatron-lm",
    "megatron-te-2025",
    "torchtitan",
    "maxtext",
)
STACK_PLANS = {
    "tp": plan(tp=4, pp=2, dp=2, recompute="selective", sequence_parallel="true"),
    "fsdp": plan(dp=16, zero_stage=3),
    "full": plan(tp=2, dp=8, zero_stage=1, recompute="full"),
    "cp": plan(cp=2, dp=8, zero_stage=2),
}
MODELS = (
    "gpt2",
    "gpt2-xl",
    "gpt-18.4b",
    "megatron-22b",
    "llama2-13b",
    "llama2-70b",
    "mistral-7b",
    "qwen2-7b",
    "bert-large",
    "mixtral-8x7b",
    "qwen3-30b-a3b",
    "gpt-oss-20b",
    "gpt-oss-120b",
    "deepseek-v2",
    "deepseek-v3",
    "kimi-k2",
    "nemotron-3-nano",
)
MODEL_OPTIONS = {
    **{
        key: f"model.{key}=true"
        for key in ("tied_embeddings", "qkv_bias", "mlp_bias", "qk_norm", "post_norm", "dropout")
    },
    **{
        f"no-{key}": f"model.{key}=false"
        for key in ("rope", "rms_norm", "gated_mlp", "causal", "fused_attention")
    },
    "window": "model.window=1024 model.full_every=2",
    "no-head": "model.head=none",
    "padded": "model.padded_vocab_size=131072",
    "short": "model.seq_len=1000",
    "layers": "model.num_layers=30 plan.stage_layers=[8, 8, 7, 7]",
}
LAYER_GROUPS = (
    Group(
        name="recompute",
        of=L8,
        base=f"{SIXTEEN} {HYBRID}",
        variants=RECOMPUTE,
        quick=("selective-sp", "modules-mlp"),
    ),
    *(
        Group(
            name=f"recompute-{stack}",
            of=L8,
            base=f"{SIXTEEN} software={stack} {HYBRID}",
            variants=RECOMPUTE,
            forms=(PLAIN,),
        )
        for stack in ("torchtitan", "megatron-2022", "generic")
    ),
    *(
        Group(
            name=f"precision-{system}",
            of=L8,
            base=f"cluster.system={system} software=megatron-bridge "
            f"plan={{tp: 2, dp_shard: 4, zero_stage: 1}}",
            variants=each("training.precision", *PRECISIONS),
            forms=(PLAIN,),
            quick=("fp8", "nvfp4") if system == "dgx-b200" else (),
        )
        for system in ("dgx-h100", "dgx-b200", "dgx-a100", "dgx-1v")
    ),
    *(
        Group(
            name=f"software-{name}",
            of=L8,
            base=f"cluster.nodes=2 {text}",
            variants=each("software", *SOFTWARE),
            forms=(PLAIN, TEXT),
            quick=("megatron-te-2025", "torchtitan") if name == "tp" else (),
        )
        for name, text in STACK_PLANS.items()
    ),
    Group(
        name="model",
        of=L8,
        base="training.precision=bf16 plan={dp: 8, zero_stage: 3} model={name: gpt2}",
        variants={name: f"model.name={name}" for name in MODELS},
        forms=(PLAIN, SEARCH),
        quick=("gpt-oss-20b",),
        seconds=1.0,
    ),
    Group(
        name="model-option",
        of=L8,
        base=f"{SIXTEEN} {HYBRID}",
        variants=MODEL_OPTIONS,
        forms=(PLAIN,),
        quick=("tied_embeddings", "window", "layers"),
    ),
    Group(
        name="context",
        of=FP8,
        variants={
            **{f"cp{n}": f"plan={{cp: {n}, dp: {8 // n}}}" for n in (2, 4, 8)},
            **{f"cp{n}-zero1": f"plan={{cp: {n}, dp: {8 // n}, zero_stage: 1}}" for n in (4, 8)},
            "cp4-tp2": "plan={cp: 4, tp: 2, dp: 1, zero_stage: 3, sequence_parallel: true}",
            "cp2-pp2": "plan={cp: 2, pp: 2, dp: 2, schedule: 1f1b, recompute: full}",
            "cp2-gpt2": "model={name: gpt2} training.precision=bf16 plan={cp: 2, dp: 4}",
        },
        forms=(PLAIN, LINKS, EVENTS, JITTER),
        quick=("cp4-tp2",),
    ),
)

EXPERTS = {
    **{f"ep{n}": f"plan.ep={n}" for n in (1, 2, 4, 8, 16)},
    **{f"zero{n}": f"plan.zero_stage={n}" for n in (2, 3)},
    "zero0": "plan={dp: 16, ep: 8}",
    "hsdp": "plan={dp_replicate: 2, dp_shard: 8, ep: 8, zero_stage: 1}",
    "etp2": "plan.ep=8 plan.etp=2",
    "tp2": "plan={tp: 2, dp: 8, ep: 8, zero_stage: 1, sequence_parallel: true}",
    "pp2": "plan={pp: 2, dp: 8, ep: 8, zero_stage: 1, schedule: 1f1b}",
    "pp2-v4": "plan={pp: 2, dp: 8, ep: 8, zero_stage: 1, schedule: interleaved_1f1b, v: 4}",
    "cp2": "plan={cp: 2, dp: 8, ep: 16, zero_stage: 1}",
    "full": "plan.recompute=full",
    **{name: f"plan.recompute_modules=[{name}]" for name in ("moe_act", "moe", "layernorm")},
    "bf16": "training.precision=bf16",
    **{
        name: f"software={name}"
        for name in ("nemo", "megatron-lm", "torchtitan", "generic", "megatron-bridge-26.06")
    },
    "deepseek": "model={name: deepseek-v3, num_layers: 8, dense_layers: 1} plan.ep=16",
    "deepseek-modules": "model={name: deepseek-v3, num_layers: 8} "
    "plan.recompute_modules=[mla_up_proj, shared_experts, mlp]",
    "mixtral": "model={name: mixtral-8x7b} plan.ep=8",
    "gpt-oss": "model={name: gpt-oss-20b} plan.ep=16",
    "nemotron": "model={name: nemotron-3-nano} plan.ep=8 training.precision=bf16",
}
EXPERT_GROUPS = (
    Group(
        name="experts",
        of=QWEN,
        base="training.global_batch_size=64",
        variants=EXPERTS,
        forms=(PLAIN, LINKS, JITTER),
        quick=("ep4", "etp2", "tp2", "pp2-v4", "deepseek-modules", "nemotron"),
    ),
    Group(
        name="experts-cpu",
        of="mixture-small-cpu",
        variants={"ep1": "plan.ep=1", "zero1": "plan.zero_stage=1", "dp1": "plan={pp: 2}"},
        forms=(PLAIN, LINKS, EVENTS),
    ),
)
KERNEL_GROUPS = (*LAYER_GROUPS, *EXPERT_GROUPS)
