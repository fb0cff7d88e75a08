"""Accelerate's configuration file of a plan (names of 1.15.0, `accelerate launch --config_file`).

Rules: no pipelines and experts of its own; replicas need shards beside them (dp_shard > 1), or are
plain DDP alone; it shards parameters (FSDP2, ZeRO-3) or nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from typing import Any

from parsim.frameworks.export.rules import (
    Rules,
    adapters_unsaid,
    check_rules,
    clip_unsaid,
    heading,
    model_unsaid,
    no_host_states,
    no_layers,
    no_placement,
    optimizer_unsaid,
    torchs_context,
    whole_heads,
)
from parsim.model.transformer import TransformerSpec
from parsim.plan import CpCommType, Plan, Recompute
from parsim.scenario import Scenario


def accelerate_yaml(scenario: Scenario, plan: Plan) -> str:
    """The YAML that `accelerate launch --config_file` reads.

    Raises:
        PlanError: Accelerate cannot run the plan.
    """
    from ruamel.yaml import YAML

    heads = whole_heads(scenario, plan, "transformers copies none (issue 48307)")
    check_rules(
        "accelerate",
        plan,
        [*no_placement(plan), *no_layers(plan), *no_host_states(plan), heads, *_rules(plan)],
    )
    yaml, text = YAML(), StringIO()
    yaml.default_flow_style = False
    yaml.dump(_document(scenario, plan), text)
    lines = [*heading(scenario, plan), *_unsaid(scenario, plan)]
    return "\n".join([*lines, text.getvalue()])


PRECISIONS = {
    "fp32": "no",
    "tf32": "no",
    "fp16": "fp16",
    "fp16_amp": "fp16",
    "bf16": "bf16",
    "bf16_amp": "bf16",
    **dict.fromkeys(("fp8", "fp8_amp", "fp8_rowwise", "mxfp8"), "fp8"),
}
"""mixed_precision of each precision that it has a word for."""


def _rules(plan: Plan) -> Rules:
    yield (
        plan.precision not in PRECISIONS,
        f"precision={plan.precision}; its mixed_precision is no, fp16, bf16 or fp8",
    )
    yield (plan.pp > 1, f"pp={plan.pp}; it has no pipelines of its own: use megatron or pp=1")
    yield (plan.ep > 1, f"ep={plan.ep}; it has no expert parallelism of its own")
    yield (
        plan.zero_stage in (1, 2),
        f"zero_stage={plan.zero_stage}; it replicates (0) or shards parameters (3, FSDP2): other "
        f"stages are DeepSpeed's",
    )
    yield torchs_context(plan)
    model_parallel = plan.tp * plan.cp > 1
    yield (
        plan.dp_replicate > 1 and plan.dp_shard == 1 and model_parallel,
        f"dp_replicate={plan.dp_replicate} beside tp or cp needs dp_shard above 1; shard instead",
    )


def _document(scenario: Scenario, plan: Plan) -> dict[str, Any]:
    document: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "FSDP" if plan.zero_stage == 3 else "MULTI_GPU",
        "mixed_precision": PRECISIONS[plan.precision],
        "num_machines": scenario.job.cluster.num_nodes,
        "num_processes": plan.world_size,
    }
    if plan.zero_stage == 3:
        document["fsdp_config"] = {
            "fsdp_version": 2,
            "fsdp_reshard_after_forward": True,
            "fsdp_activation_checkpointing": plan.recompute is Recompute.FULL,
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        }
    if plan.tp * plan.cp > 1 or plan.dp_shard > 1:
        document["parallelism_config"] = _degrees(plan)
    return document


def _degrees(plan: Plan) -> dict[str, Any]:
    """Degrees of the axes that Accelerate makes a mesh of."""
    return {
        "parallelism_config_dp_replicate_size": plan.dp_replicate,
        "parallelism_config_dp_shard_size": plan.dp_shard,
        "parallelism_config_tp_size": plan.tp,
        "parallelism_config_cp_size": plan.cp,
        **_exchange(plan),
    }


def _exchange(plan: Plan) -> dict[str, str]:
    """What context ranks exchange where the plan says it, as torch calls it."""
    names = {CpCommType.P2P: "alltoall", CpCommType.ALL_GATHER: "allgather"}
    name = names.get(plan.cp_comm_type) if plan.cp > 1 else None
    return {"parallelism_config_cp_comm_strategy": name} if name else {}


def _unsaid(scenario: Scenario, plan: Plan) -> Iterator[str]:
    spec, job = scenario.model, scenario.job
    attention: tuple[str, ...] = ()
    if isinstance(spec, TransformerSpec):
        attention = (*model_unsaid(spec), *adapters_unsaid(spec))
    yield from (f"# {line}" for line in (*attention, *optimizer_unsaid(job), *clip_unsaid(job)))
    if plan.precision == "tf32":
        yield "# precision tf32: torch.set_float32_matmul_precision('high') in your code"
    if PRECISIONS[plan.precision] == "fp8":
        yield f"# precision {plan.precision}: fp8_config names the backend and its recipe"
    yield f"# in your code: batches of {plan.microbatch_size} sequences,"
    yield f"# gradient_accumulation_steps={plan.num_microbatches}"
    if plan.recompute is Recompute.SELECTIVE or plan.recompute_modules:
        yield "# selective recomputation is in your model's code"
    if plan.sequence_parallel:
        yield "# sequence parallelism beside tensor parallelism is in your model's tensor plan"
