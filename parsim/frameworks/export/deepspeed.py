"""DeepSpeed's JSON of a plan (names of 0.19.6).

Rules: no ZeRO-2 and 3 with pipelines; ep divides world / pp, experts are whole, and beside tensor
parallelism they exclude pipelines, sequence parallelism and ZeRO-3 (AutoEP folding,
module_inject/auto_ep_folding.py). The pipeline's degree is code (`PipelineModule(num_stages=...)`).
JSON has no comments: what it cannot say stands under `_parsim`, a key that DeepSpeed does not read.
"""

from __future__ import annotations

import json
from typing import Any

from parsim.frameworks.export.rules import (
    Rules,
    adapters_unsaid,
    check_rules,
    heading,
    model_unsaid,
    no_layers,
    no_placement,
    no_sharded_pipeline,
    optimizer_unsaid,
    schedule_name,
    whole_heads,
)
from parsim.model.transformer import TransformerSpec
from parsim.plan import RANK_ORDER, CpCommType, Plan, Recompute
from parsim.scenario import Scenario


def deepspeed_json(scenario: Scenario, plan: Plan) -> str:
    """The configuration file for `deepspeed.initialize`.

    Raises:
        PlanError: DeepSpeed cannot run the plan.
    """
    heads = whole_heads(scenario, plan, "its AutoTP copies none (issue 7259)")
    check_rules("deepspeed", plan, [*no_placement(plan), *no_layers(plan), heads, *_rules(plan)])
    document: dict[str, Any] = {
        "_parsim": [*heading(scenario, plan, ""), *_unsaid(scenario, plan)],
        "train_batch_size": plan.global_batch_size,
        "train_micro_batch_size_per_gpu": plan.microbatch_size,
        "gradient_accumulation_steps": plan.num_microbatches,
        "gradient_clipping": scenario.job.clip,  # its default is 0, which clips nothing
        "zero_optimization": _zero(plan),
    }
    if plan.precision in ("fp16", "fp16_amp"):
        document["fp16"] = {"enabled": True}
    elif plan.precision not in ("fp32", "tf32"):
        document["bf16"] = {"enabled": True}
    return json.dumps(document | _degrees(plan), indent=2) + "\n"


def _degrees(plan: Plan) -> dict[str, Any]:
    """How the model is divided, by the keys of each way."""
    keys: dict[str, Any] = {}
    if plan.tp > 1:
        keys["tensor_parallel"] = {"autotp_size": plan.tp}
    if plan.cp > 1:
        keys["sequence_parallel_size"] = plan.cp
    if plan.ep > 1:
        keys["expert_parallel"] = {"enabled": True, "autoep_size": plan.ep}
    if plan.pp > 1:
        interval = 1 if plan.recompute is Recompute.FULL else 0
        keys["pipeline"] = {"stages": plan.pp, "activation_checkpoint_interval": interval}
    return keys


def _rules(plan: Plan) -> Rules:
    named = schedule_name(plan)
    yield (plan.pp > 1 and named != "1f1b", f"schedule {named}; its pipelines have 1f1b")
    yield no_sharded_pipeline(plan)
    yield (plan.ep > 1 and plan.etp > 1, f"etp={plan.etp}; it splits no experts, use etp=1")
    beside = {"pp": plan.pp > 1, "cp": plan.cp > 1, "zero_stage": plan.zero_stage == 3}
    clash = next((name for name, has in beside.items() if has), "")
    yield (
        plan.ep > 1 and plan.tp > 1 and bool(clash),
        f"ep={plan.ep} with tp={plan.tp} excludes {clash}={getattr(plan, clash or 'pp')}",
    )
    stage = plan.stage_ranks
    yield (stage % plan.ep != 0, f"ep={plan.ep} does not divide world / pp = {stage}")
    yield (
        plan.optimizer_offload and plan.zero_stage == 0,
        "optimizer_offload=true with zero_stage=0; its offload_optimizer is for zero_stage 1, 2 "
        "or 3",
    )
    yield from _replica_rules(plan)


def _replica_rules(plan: Plan) -> Rules:
    """Rules of the order of ranks, and of shards over some replicas only."""
    yield (
        plan.rank_order != RANK_ORDER,
        f"rank_order={'-'.join(plan.rank_order)}; it has {'-'.join(RANK_ORDER)}",
    )
    yield (
        plan.zero_stage in (1, 2) and plan.dp_replicate > 1,
        f"shards over {plan.dp_shard} of {plan.dp} replicas; with zero_stage {plan.zero_stage} it "
        f"shards over all (mics_shard_size is for zero_stage 3)",
    )
    yield (
        plan.dp_replicate > 1 and plan.zero_stage == 3 and plan.tp * plan.cp > 1,
        f"shards over {plan.dp_shard} of {plan.dp} replicas beside tp={plan.tp} and cp={plan.cp}; "
        f"its mics_shard_size divides all ranks, use tp=1 with cp=1 or dp_replicate=1",
    )


def _zero(plan: Plan) -> dict[str, Any]:
    zero: dict[str, Any] = {"stage": plan.zero_stage, "overlap_comm": plan.overlap_grad_reduce}
    if plan.bucket_bytes is not None:
        zero["reduce_bucket_size"] = int(plan.bucket_bytes // 2)
    if plan.zero_stage == 3 and plan.dp_replicate > 1:
        # zero_hpz_partition_size would share all states among all ranks, with a second copy
        zero["mics_shard_size"] = plan.dp_shard
    if plan.optimizer_offload:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    return zero


def _unsaid(scenario: Scenario, plan: Plan) -> list[str]:
    """What JSON cannot say."""
    spec = scenario.model
    attention: tuple[str, ...] = ()
    if isinstance(spec, TransformerSpec):
        attention = (*model_unsaid(spec), *adapters_unsaid(spec))
    lines = [*attention, *optimizer_unsaid(scenario.job)]
    if plan.precision not in ("fp32", "bf16", "fp16"):
        lines.append(f"precision {plan.precision}: its products or its autocast are code")
    if "mics_shard_size" in _zero(plan):
        lines.append("code: make the model in deepspeed.zero.MiCS_Init")
    if plan.pp > 1:
        lines.append(f"code: PipelineModule(layers=..., num_stages={plan.pp})")
    if plan.stage_layers is not None:
        lines.append(f"code: stages of {list(plan.stage_layers)} layers (partition_method)")
    if plan.recompute is not Recompute.NONE and plan.pp == 1:
        lines.append(f"code: activation checkpointing, {plan.recompute.name.lower()}")
    if plan.sequence_parallel:
        lines.append("sequence parallelism beside tensor parallelism is not DeepSpeed's")
    if plan.cp > 1 and plan.cp_comm_type is not CpCommType.A2A:
        lines.append("sequence_parallel_size is Ulysses: predicted with cp_comm_type: a2a alone")
    return lines
