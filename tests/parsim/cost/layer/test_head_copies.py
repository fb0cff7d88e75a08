"""Key-value heads that are fewer than tensor-parallel ranks: what each rank computes and holds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.collective.collectives import collective_time
from parsim.cost.collective.group_bandwidth import groups
from parsim.cost.job import Job
from parsim.cost.layer.context import keys_and_values
from parsim.cost.layer.head_copies import copied_parameters, shared_parameters
from parsim.cost.layer.kept.activations import whole_parts
from parsim.cost.layer.tensor_exchanges import TensorGroups
from parsim.cost.software import software
from parsim.cost.step.pair_sums import head_sums
from parsim.cost.step.plan_kernels import plan_kernels
from parsim.cost.step.stages import rank_parameters
from parsim.model.model import Model
from parsim.model.operators import Linear
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import Plan, PlanTable

SPEC = model_spec("llama3-8b")  # 32 heads of queries, 8 of keys and values, of 128
H, D = 4096, 128


def model(kv_heads: int) -> Model:
    return build_transformer(replace(SPEC, num_key_value_heads=kv_heads))


def job(kv_heads: int, stack: str = "generic", nodes: int = 4) -> Job:
    cluster = Cluster(system=load_catalog().system("dgx-h100"), num_nodes=nodes)
    return Job(model=model(kv_heads), cluster=cluster, software=software(stack))


def plan(tp: int, **fields: object) -> Plan:
    return Plan(tp=tp, dp_replicate=32 // tp, num_microbatches=2, **fields)  # type: ignore[arg-type]


def products(which: Job, tp: int) -> float:
    """FLOPs of all matrix products of a step on one rank."""
    kernels = plan_kernels(which, plan(tp))
    return sum(
        2.0 * float(np.prod(kernel.where)) * kernel.count
        for kernel in kernels
        if kernel.kind == "gemm"
    )


@given(kv_heads=st.sampled_from([1, 2, 4, 8, 16, 32]), tp=st.sampled_from([1, 2, 4, 8, 16, 32]))
def test_ranks_hold_the_whole_model_and_copies(kv_heads: int, tp: int) -> None:
    table, total = PlanTable.of([plan(tp)]), 0.0
    for layer in model(kv_heads).layers:
        copied = copied_parameters(layer, table)[0]
        repeated = layer.repeated_parameters
        each = rank_parameters(layer, table)[0] - copied - repeated
        total += tp * each + repeated
    assert total == model(kv_heads).parameters


@pytest.mark.parametrize(("kv_heads", "tp"), [(1, 4), (8, 16), (8, 32), (2, 4), (8, 8), (8, 1)])
def test_a_rank_has_at_least_one_head(kv_heads: int, tp: int) -> None:
    table, layer = PlanTable.of([plan(tp)]), model(kv_heads).kinds[0]
    heads = max(1, kv_heads // tp)
    several = tp > kv_heads
    assert copied_parameters(layer, table)[0] == 2 * H * D * (heads - kv_heads / tp)
    assert shared_parameters(layer, table)[0] == (2 * H * D * heads if several else 0)
    queries = 32 // tp
    tokens = SPEC.seq_len
    kept = whole_parts(layer, table)["attention"][0]
    # Q, K, V, what the projection reads, and the input of all of them, in bf16
    assert kept == tokens * 2 * ((queries + 2 * heads + queries) * D + H)


def test_products_of_copies_are_computed_on_each_rank() -> None:
    layers, tokens = SPEC.num_layers, SPEC.seq_len * 2
    for kv_heads, tp in ((1, 4), (8, 16), (8, 8)):
        heads = max(1, kv_heads // tp)
        more = 3 * 2 * layers * tokens * H * 2 * D * (heads - kv_heads / tp)
        shared = 3 * model(kv_heads).forward_flops(2)
        cores = 3 * 2 * 2 * 2 * SPEC.seq_len**2 * 32 * D * layers
        assert products(job(kv_heads), tp) == pytest.approx((shared - cores) / tp + more, rel=1e-12)


def test_gathered_heads_are_divided_and_cost_a_gather() -> None:
    copied, gathered = job(8, "generic"), job(8, "megatron-lm")
    table, layer = PlanTable.of([plan(16)]), gathered.model.kinds[0]
    assert copied_parameters(layer, table)[0] == 0
    assert products(gathered, 16) < products(copied, 16)
    (qkv,) = (op for op in layer.operators if isinstance(op, Linear) and op.shared is not None)
    assert qkv.shared is not None
    ahead, behind = TensorGroups.of(gathered, table).heads(qkv, qkv.shared)
    assert ahead[0] > 0
    assert behind[0] > 0
    whole = PlanTable.of([plan(8)])
    ahead, behind = TensorGroups.of(gathered, whole).heads(qkv, qkv.shared)
    assert ahead[0] == behind[0] == 0
    # keys and values in attention are whole heads either way
    kept = [whole_parts(each.model.kinds[0], table)["attention"][0] for each in (copied, gathered)]
    assert kept[0] == kept[1]


def test_a_job_lays_heads_out_as_its_software_does() -> None:
    first = job(8, "megatron-lm")
    assert first.model is not model(8)
    assert replace(first).model is first.model
    back = replace(first, software=software("generic")).model
    assert back == model(8)
    assert first.model.parameters == back.parameters


def test_context_ranks_exchange_whole_heads() -> None:
    where = job(2)
    ring = Plan(tp=4, cp=2, dp_replicate=4, num_microbatches=2)
    table = PlanTable.of([ring])
    assert keys_and_values(where, table, where.model.attention).size[0] == (  # type: ignore[arg-type]
        SPEC.seq_len * 2 * 1 * D * 2
    )


def test_the_sum_of_copies_is_of_the_ranks_that_share_a_head() -> None:
    """t/g ranks all-reduce 2 h d g / min(t, g) fp32 values of each layer."""
    counts = np.array([[32]])
    for heads, tp in ((1, 4), (2, 8), (8, 16)):
        where, table = job(heads), PlanTable.of([plan(tp)])
        ranks = groups(
            where.system, size=table.tp // heads, stride=table.stride("tp"), world=table.world_size
        )
        size = np.array([4.0 * 32 * 2 * H * D])
        expected = collective_time(where.system, "all_reduce", size, ranks)
        assert np.ravel(head_sums(where, table, counts)) == pytest.approx(expected)
    assert head_sums(job(1), PlanTable.of([plan(1)]), counts) == 0.0
    assert head_sums(job(8), PlanTable.of([plan(8)]), counts) == 0.0
    assert head_sums(job(8, "megatron-lm"), PlanTable.of([plan(16)]), counts) == 0.0
