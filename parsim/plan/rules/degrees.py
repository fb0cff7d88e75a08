"""Rules of degrees: as many ranks as devices, and what tensor, context and expert ranks divide."""

from __future__ import annotations

from math import gcd, lcm

from parsim.cluster.hardware import Cluster
from parsim.model.model import Model
from parsim.model.operators import Experts, Linear, Split
from parsim.plan.names import CpCommType
from parsim.plan.record import Plan

ZERO_STAGES = (0, 1, 2, 3)
"""What ZeRO shards: nothing, optimizer states, gradients too, parameters too."""


def degree_rules(plan: Plan, model: Model, cluster: Cluster) -> str | None:
    """Degrees and counts start at 1."""
    degrees = ("tp", "pp", "dp_replicate", "dp_shard", "cp", "ep", "etp")
    for name in (*degrees, "microbatch_size", "num_microbatches", "v"):
        if getattr(plan, name) < 1:
            return f"{name}={getattr(plan, name)} must be at least 1"
    return None


def world_rules(plan: Plan, model: Model, cluster: Cluster) -> str | None:
    """A plan uses every device of its cluster."""
    if plan.world_size == cluster.num_devices:
        return None
    if plan.stages is not None:
        return (
            f"world size mismatch: stages have {plan.world_size} ranks (replicas x "
            f"{_in_words(plan.stage_tp)}), but the cluster has {cluster.num_devices} devices; "
            f"change replicas"
        )
    rest = plan.pp * plan.cp * plan.tp
    fix = f"pp x cp x tp = {rest} must divide {cluster.num_devices}"
    if cluster.num_devices % rest == 0:
        fix = f"use dp={cluster.num_devices // rest}"
    return (
        f"world size mismatch: pp={plan.pp} x dp={plan.dp} x cp={plan.cp} x tp={plan.tp} = "
        f"{plan.world_size}, but the cluster has {cluster.num_devices} devices; {fix}"
    )


def _in_words(stage_tp: tuple[int, ...]) -> str:
    return f"tp={stage_tp[0]}" if len({*stage_tp}) == 1 else f"tp={list(stage_tp)}"


def sharding_rules(plan: Plan, model: Model, cluster: Cluster) -> str | None:
    """States are shared where ranks are there to share them."""
    if plan.zero_stage not in ZERO_STAGES:
        stages = ", ".join(map(str, ZERO_STAGES))
        return f"zero_stage={plan.zero_stage} is unknown; allowed: {stages}"
    if plan.zero_stage == 0 and plan.dp_shard > 1:
        return (
            f"zero_stage=0 shards nothing, but dp_shard={plan.dp_shard}; use "
            f"dp_replicate={plan.dp} or zero_stage 1, 2 or 3"
        )
    if plan.zero_stage > 0 and plan.dp_shard * plan.cp == 1:
        return (
            f"zero_stage={plan.zero_stage} has nothing to shard over with dp_shard=1; "
            f"use zero_stage=0 or dp_shard > 1"
        )
    return None


def divisors(n: int, limit: int | None = None) -> list[int]:
    """Divisors of n in ascending order, up to a limit."""
    return [d for d in range(1, min(n, limit or n) + 1) if n % d == 0]


def listed(values: list[int]) -> str:
    """Numbers with commas between."""
    return ", ".join(map(str, values))


KEY_VALUE_HEADS = "num_key_value_heads"


def tensor_splits(model: Model) -> dict[str, int]:
    """What tensor parallelism must divide, by its name in a config file."""
    attention = model.attention
    splits: dict[str, int] = {}
    if attention is not None:
        splits["num_attention_heads"] = attention.heads
        splits[KEY_VALUE_HEADS] = attention.kv_heads
    for op in model.kinds[0].operators if model.kinds else ():
        if isinstance(op, Linear) and op.name == "fc2" and op.split is Split.ROW:
            splits["ffn_hidden_size"] = op.inputs
    return splits


def is_splittable(model: Model) -> bool:
    """Whether any of a model's matrices can be divided over tensor-parallel ranks."""
    return any(
        isinstance(op, Linear | Experts) and getattr(op, "split", None) is not Split.NONE
        for layer in model.kinds
        for op in layer.operators
    )


def tensor_rules(plan: Plan, model: Model, cluster: Cluster) -> str | None:
    """Heads, widths and tokens that tensor-parallel ranks divide evenly."""
    for degree in dict.fromkeys((plan.tp, *plan.stage_tp)):
        message = _split(degree, model)
        if message is not None:
            return message
    if plan.sequence_parallel and plan.tp == 1:
        return "sequence_parallel=true needs tp > 1; use sequence_parallel=false with tp=1"
    if plan.sequence_parallel and model.tokens % plan.tp:
        return (
            f"sequence_parallel=true: tp={plan.tp} does not divide seq_len={model.tokens}; "
            f"allowed: {listed(divisors(model.tokens, 1024))}"
        )
    return None


def tensor_degrees(model: Model) -> list[int]:
    """Degrees of tensor parallelism that a model's sizes allow.

    They divide heads and widths. Key-value heads they divide or are a multiple of: then each head
    stands on several ranks, see `parsim.model.shared_heads`.
    """
    splits = tensor_splits(model)
    heads = splits.pop(KEY_VALUE_HEADS, 1)
    common = divisors(gcd(*splits.values())) if splits else [1]
    return [tp for tp in common if goes_with(tp, heads)]


def goes_with(tp: int, heads: int) -> bool:
    """Whether so many ranks share out so many key-value heads, or each head has as many ranks."""
    return heads % tp == 0 or tp % heads == 0


def _split(tp: int, model: Model) -> str | None:
    """What of a model so many tensor-parallel ranks cannot split."""
    if tp > 1 and not is_splittable(model):
        return f"tp={tp}: {model.name} has no matrices that tensor parallelism splits; use tp=1"
    for name, size in tensor_splits(model).items():
        shared = name == KEY_VALUE_HEADS
        if size % tp == 0 or (shared and goes_with(tp, size)):
            continue
        wrong = "neither divides nor is a multiple of" if shared else "does not divide"
        return f"tp={tp} {wrong} {name}={size}; allowed: {listed(tensor_degrees(model))}"
    return None


def context_rules(plan: Plan, model: Model, cluster: Cluster) -> str | None:
    """What context parallelism cuts: two pieces a rank of a causal sequence, from either end."""
    if plan.cp == 1:
        return None
    attention = model.attention
    if attention is None or not attention.fused:
        what = "no attention" if attention is None else "unfused attention"
        return (
            f"cp={plan.cp}: context parallelism needs fused attention, whose blocks can be merged, "
            f"but {model.name} has {what}; use cp=1"
        )
    pieces = plan.cp * lcm(2 if attention.causal else 1, plan.tp if plan.sequence_parallel else 1)
    if model.tokens % pieces:
        return (
            f"cp={plan.cp} cuts seq_len={model.tokens} into {pieces} equal pieces, which it "
            f"cannot be cut into; use a seq_len that is a multiple of {pieces}, or a smaller cp"
        )
    return heads_shared_out(plan, model) if plan.cp_comm_type is CpCommType.A2A else None


def heads_shared_out(plan: Plan, model: Model) -> str | None:
    """All-to-alls give each context rank as many heads, of keys and values too."""
    heads = {name: size for name, size in tensor_splits(model).items() if name.endswith("heads")}
    for name, size in heads.items():
        if size % (plan.tp * plan.cp):
            each = max(gcd(*heads.values()) // plan.tp, 1)
            return (
                f"cp_comm_type=a2a gives each rank the same number of heads, but tp={plan.tp} x "
                f"cp={plan.cp} does not divide {name}={size}; allowed cp: "
                f"{listed(divisors(each))}, or cp_comm_type p2p or all_gather"
            )
    return None


def expert_rules(plan: Plan, model: Model, cluster: Cluster) -> str | None:
    """Where a layer's experts go, and which tokens a rank has for them."""
    experts = model.experts
    if experts is None:
        for name in ("ep", "etp"):
            if getattr(plan, name) > 1:
                return f"{name}={getattr(plan, name)}: {model.name} has no experts; use {name}=1"
        return None
    if cluster.groups:
        return (
            f"{model.name} has experts, which are not priced on nodes of several kinds; use "
            f"cluster.system and cluster.nodes, or a dense model"
        )
    if experts.count % plan.ep:
        return (
            f"ep={plan.ep} does not divide num_experts={experts.count}; "
            f"allowed: {listed(divisors(experts.count))}"
        )
    if experts.ffn_hidden_size % plan.etp:
        return (
            f"etp={plan.etp} does not divide expert_ffn_hidden_size={experts.ffn_hidden_size}; "
            f"allowed: {listed(divisors(experts.ffn_hidden_size, 64))}"
        )
    return _expert_ranks(plan)


def _expert_ranks(plan: Plan) -> str | None:
    """Experts are divided over neighbouring ranks of a stage, inside what shares its parameters."""
    if plan.tp > 1 and not plan.sequence_parallel:
        return (
            f"tp={plan.tp} without sequence parallelism: each rank would route all tokens to the "
            f"same experts; use sequence_parallel=true or tp=1"
        )
    data = plan.dp_shard if plan.zero_stage else plan.dp
    name = "dp_shard" if plan.zero_stage else "dp"
    ranks = data * plan.cp * plan.tp
    if ranks % (plan.ep * plan.etp):
        return (
            f"ep={plan.ep} x etp={plan.etp} = {plan.ep * plan.etp} does not divide {name}={data} x "
            f"cp={plan.cp} x tp={plan.tp} = {ranks}; allowed: {listed(divisors(ranks))}"
        )
    order = [axis for axis in plan.rank_order if plan.degree(axis) > 1]
    if plan.ep * plan.etp > 1 and "pp" in order[1:]:
        return (
            f"rank_order={'-'.join(plan.rank_order)}: ep={plan.ep} x etp={plan.etp} needs a "
            f"stage's ranks side by side; put pp first"
        )
    return None
