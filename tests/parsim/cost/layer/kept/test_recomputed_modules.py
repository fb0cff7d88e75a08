"""Parts of layers by name: what is computed again, what then is not kept, what graphs launch."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.layer.kept.activations import kept_bytes, kept_policy
from parsim.cost.layer.kept.recomputed_modules import launched, repeated
from parsim.cost.layer.layers import LayerCoster
from parsim.cost.legal import illegal
from parsim.cost.software import software
from parsim.errors import PlanError
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import Plan, PlanTable, Recompute
from parsim.plan.names import RECOMPUTE_MODULES, REGION_MODULES
from parsim.plan.rules.violation import check_plan
from parsim.sim.utilisation import recomputed_flops

MIXTURES = tuple(name for name in RECOMPUTE_MODULES if name not in ("mlp", *REGION_MODULES))
"""Modules of a layer with experts and latent attention."""


@cache
def job() -> Job:
    spec = replace(model_spec("deepseek-v3"), num_layers=4, dense_layers=1)
    cluster = Cluster(system=load_catalog().system("dgx-h100"), num_nodes=1)
    return Job(model=build_transformer(spec), cluster=cluster, software=software("megatron-lm"))


def plan(*names: str, again: Recompute = Recompute.NONE) -> Plan:
    return Plan(dp_shard=8, ep=8, zero_stage=1, recompute=again, recompute_modules=names)


def again(*names: str, layer: int = -1, level: Recompute = Recompute.NONE) -> float:
    table = PlanTable.of([plan(*names, again=level)])
    cost = LayerCoster(job(), table).cost(job().model.blocks[layer])
    return float(cost.recomputed(table, half_products=False).seconds[0])


def kept(*names: str, layer: int = -1) -> float:
    table = PlanTable.of([plan(*names)])
    return float(kept_bytes(job().model.blocks[layer], table)[0])


def names_of(*names: str, layer: int = -1) -> list[str]:
    modules = repeated(job().model.blocks[layer], names)
    return [getattr(op, "name", type(op).__name__) for op in modules]


def test_which_operators_a_module_is() -> None:
    assert names_of() == []
    assert names_of("core_attn") == ["Attention"]
    assert names_of("layernorm") == ["attention_norm", "mlp_norm"]
    assert names_of("mla_up_proj") == ["q_up", "kv_up", "rope"]
    assert names_of("moe") == ["Experts", "fc1", "swiglu", "fc2"]
    assert names_of("mlp") == [] == names_of("moe", layer=0)
    assert names_of("mlp", layer=0) == ["fc1", "swiglu", "fc2"]


@pytest.mark.parametrize("name", MIXTURES)
def test_each_module_costs_time_and_spares_memory(name: str) -> None:
    assert again() == 0.0 < again(name) < again(level=Recompute.FULL)
    assert kept(name) < kept()


def test_modules_add_up() -> None:
    both = again("core_attn", "layernorm")
    assert both == pytest.approx(again("core_attn") + again("layernorm"))
    assert kept() - kept("core_attn", "layernorm") == pytest.approx(
        2.0 * kept() - kept("core_attn") - kept("layernorm")
    )


def test_the_core_alone_is_selective_recomputation() -> None:
    assert again("core_attn") == pytest.approx(again(level=Recompute.SELECTIVE))


def test_experts_are_sent_again_too() -> None:
    assert again("moe") > again("shared_experts") + again("moe_act")


def test_full_recomputation_holds_every_module() -> None:
    assert again("moe", "layernorm", level=Recompute.FULL) == again(level=Recompute.FULL)


def test_flops_of_modules() -> None:
    assert recomputed_flops(job(), plan("layernorm")) == 0.0
    core = plan(again=Recompute.SELECTIVE)
    assert recomputed_flops(job(), plan("core_attn")) == recomputed_flops(job(), core)


def test_an_unknown_module_is_told() -> None:
    with pytest.raises(PlanError, match=r"recompute_modules='moe_akt' is unknown.*moe_act"):
        check_plan(plan("moe_akt"), job().model, job().cluster)


def in_region(*names: str, precision: str = "bf16") -> tuple[list[str], float]:
    """Operators that MaxText repeats of a Llama layer, and bytes kept per token and width."""
    spec = model_spec("llama2-70b")
    layer = build_transformer(spec).blocks[0]
    plans = [Plan(dp_shard=8, zero_stage=3, recompute_modules=names, precision=precision)]
    policy = kept_policy(software("maxtext"))
    kept = float(kept_bytes(layer, PlanTable.of(plans), policy)[0])
    again = repeated(layer, names, region=policy.region)
    ops = [getattr(op, "name", type(op).__name__) for op in again]
    return ops, kept / (spec.seq_len * spec.hidden_size)


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_a_compiler_s_region_keeps_the_named_products_alone(precision: str) -> None:
    """MaxText's save_dot_except_mlp: the input, q, k and v (an eighth each), the projection."""
    names = "layernorm", "core_attn", "mlp"
    ops, kept = in_region(*names, precision=precision)
    assert ops == ["attention_norm", "Attention", "mlp_norm", "fc1", "swiglu"]  # nobody reads fc2's
    assert kept == pytest.approx(2.0 * (1.0 + 1.25 + 1.0))
    ops, kept = in_region(*names, "attn_proj", precision=precision)  # save_qkv_proj
    assert "projection" in ops
    assert kept == pytest.approx(2.0 * (1.0 + 1.25))


def test_only_a_compiler_repeats_the_projection_alone() -> None:
    cluster = Cluster(system=load_catalog().system("dgx-h100"), num_nodes=1)
    model = build_transformer(model_spec("llama2-7b"))
    some = Plan(dp_shard=8, zero_stage=3, recompute_modules=("attn_proj",))
    told = illegal(Job(model=model, cluster=cluster, software=software("megatron-lm")), some)
    assert told is not None
    assert "recompute_modules=attn_proj: megatron-lm checkpoints each module by itself" in told
    assert illegal(Job(model=model, cluster=cluster, software=software("maxtext")), some) is None


def test_what_graphs_leave_to_the_host() -> None:
    layer = job().model.blocks[-1]
    assert launched(layer, ("all",)) == ()
    left = [getattr(op, "name", type(op).__name__) for op in launched(layer, ("attn",))]
    assert left == ["mlp_norm", "Experts", "fc1", "swiglu", "fc2", "mlp_residual"]
    left = [getattr(op, "name", "") for op in launched(layer, ("attn", "moe_router"))]
    assert left == [""]
