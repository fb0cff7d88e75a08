"""Experts' seconds, bytes and groups: what ep splits, what the all-to-all adds, who reduces."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.data.data_parallel import DataParallel
from parsim.cost.data.reduction import bucketed_reduction, final_reduction
from parsim.cost.data.static_bytes import Weights, static_bytes
from parsim.cost.job import Job
from parsim.cost.layer.layers import LayerCoster
from parsim.cost.layer.mixture.dispatch import CHANNELS
from parsim.cost.layer.mixture.exchanges import expert_groups
from parsim.cost.layer.passes import LayerCost
from parsim.cost.software import Software, software
from parsim.cost.step.stages import layer_counts, stage_experts, stage_parameters
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import Plan, PlanTable
from parsim.sim import simulate

DEGREES = (1, 2, 4, 8, 16, 32)


@cache
def job(count: int = 64, top: int = 4, nodes: int = 4, stack: str = "megatron-te-2025") -> Job:
    spec = replace(
        model_spec("qwen3-30b-a3b"), num_layers=2, num_experts=count, experts_per_token=top
    )
    cluster = Cluster(system=load_catalog().system("dgx-h100"), num_nodes=nodes)
    return Job(model=build_transformer(spec), cluster=cluster, software=software(stack))


def plan(**fields: object) -> Plan:
    return Plan(**{"dp_shard": 32, "zero_stage": 1, "num_microbatches": 2, **fields})  # type: ignore[arg-type]


def layer(of: Job, plan: Plan) -> LayerCost:
    return LayerCoster(of, PlanTable.of([plan])).cost(of.model.blocks[0])


def test_one_group_of_experts_has_no_all_to_all() -> None:
    cost = layer(job(), plan())
    assert cost.routed.exposed[0] == 0.0
    assert cost.forward.exposed[0] == cost.backward.exposed[0] == 0.0


def test_tokens_go_there_and_back_in_either_direction() -> None:
    cost = layer(job(), plan(ep=8))
    assert cost.forward.exposed[0] == cost.backward.exposed[0] == cost.routed.exposed[0] > 0.0


def test_a_group_across_nodes_moves_its_tokens_slower() -> None:
    inside, across = (layer(job(), plan(ep=ep)).routed.exposed[0] for ep in (8, 16))
    assert across > 2.0 * inside


def test_a_hidden_all_to_all_shows_the_multiprocessors_that_it_takes() -> None:
    hidden = replace(job().software, expert_overlap={"default": 0.0, "h100": 1.0})
    shown = layer(replace(job(), software=hidden), plan(ep=8)).forward.exposed[0]
    whole = layer(job(), plan(ep=8)).forward.exposed[0]
    assert shown == pytest.approx(whole * CHANNELS / job().device.sm_count)


def test_an_all_to_all_hides_beside_no_more_compute_than_there_is() -> None:
    """T seconds of exchanges of both passes beside C of compute: T - C show."""
    used = replace(job().software, expert_overlap={"default": 1.0})
    slow = replace(job().system.network, nic_bandwidth=1e9)  # type: ignore[type-var]
    cluster = replace(job().cluster, system=replace(job().system, network=slow))
    plain = layer(replace(job(), cluster=cluster), plan(ep=16))
    shown = layer(replace(job(), cluster=cluster, software=used), plan(ep=16))
    moved = plain.forward.exposed[0] + plain.backward.exposed[0]
    beside = plain.forward.kernels[0] + plain.backward.kernels[0]
    assert moved > 2.0 * beside
    left = shown.forward.exposed[0] + shown.backward.exposed[0]
    assert left == pytest.approx(moved - beside)
    assert shown.forward.exposed[0] == pytest.approx(shown.routed.exposed[0])


def test_a_stack_may_send_tokens_in_8_bit_and_fetch_them_in_16() -> None:
    used = replace(job().software, expert_dispatcher="deepep")
    small = replace(used, quantized_dispatch=True)
    # without latencies, so that half of the bytes take half of the time
    network = replace(job().system.network, latency=0.0)  # type: ignore[type-var]
    intra = replace(job().system.intra, latency=0.0)
    quick = replace(job().cluster, system=replace(job().system, network=network, intra=intra))

    def moved(stack: Software, precision: str) -> float:
        given = plan(ep=16, precision=precision)
        there = replace(job(), cluster=quick, software=stack)
        return float(layer(there, given).routed.exposed[0])

    half = (1.0 + 4.0 / 128.0) / 2.0
    assert moved(small, "fp8") / moved(used, "fp8") == pytest.approx((1.0 + half) / 2.0)
    assert moved(small, "bf16") == moved(used, "bf16")


def launches(**software: object) -> tuple[float, float]:
    cost = layer(replace(job(), software=replace(job().software, **software)), plan(ep=8))  # type: ignore[arg-type]
    return float(cost.forward.launches[0]), float(cost.backward.launches[0])


def test_graphs_launch_what_the_host_need_not() -> None:
    plain = launches()
    router = launches(graphs=("moe_router",))
    more = launches(graphs=("moe_router", "moe_preprocess", "attn"))
    assert all(p > r > m > 0.0 for p, r, m in zip(plain, router, more, strict=True))
    assert launches(graphs=("all",)) == (0.0, 0.0)


def test_exchanges_beside_compute_take_launches_until_a_whole_graph_has_them() -> None:
    beside: dict[str, object] = {"expert_overlap": {"default": 1.0}, "overlap_launches": 35.0}
    used = job().software
    more = 35.0 * used.expert_launch / used.launch_cost
    waiting = launches(overlap_launches=35.0)
    assert launches(**beside) == pytest.approx([count + more for count in waiting])
    partly = launches(**beside, graphs=("attn", "moe_router", "moe_preprocess"))
    assert partly[0] > more
    assert launches(**beside, graphs=("all",)) == (0.0, 0.0)


def test_launches_around_experts_take_their_own_time_of_the_host() -> None:
    short, long = launches(expert_launch=15e-6), launches(expert_launch=60e-6)
    used = job().software
    each = (10.0 + 20.0 + 10.0 + 2.0 * 8) * used.launch_cost  # 8 local experts of 64 on 8 ranks
    assert (long[0] - short[0]) * used.launch_cost == pytest.approx(each * 45e-6 / 15e-6)
    assert launches(launch_cost=0.0) < short  # a stack that compiles whole steps


def test_slow_kernels_around_experts_depend_on_multiprocessors() -> None:
    def seconds(**software: object) -> float:
        used = replace(job().software, **software)  # type: ignore[arg-type]
        return float(layer(replace(job(), software=used), plan(ep=8)).backward.kernels[0])

    fast, slow, slower = (seconds(row_rate=rate) for rate in (1e12, 18e9, 9e9))
    assert fast < slow < slower
    assert seconds(row_rate=0.0) == fast
    assert fast < seconds(row_rate=18e9, fused_experts=True) < slow


def test_fused_products_of_8_bit_end_with_activation_and_casts() -> None:
    """What a token's outer values cost stays; in 16 bit the activation is a kernel of its own.

    4 rows a token. Forward: the activation reads 2 f and writes f of 2 bytes, and the cast of f is
    65/16 bytes a value; backward: 5 f of 2 bytes, and 2 f are cast.
    """

    def kernels(precision: str, *, fused: bool) -> tuple[float, float]:
        used = replace(job().software, fused_experts=fused, row_rate=0.0, traffic=1.0)
        cluster = replace(job().cluster, system=load_catalog().system("dgx-b200"))
        of = replace(job(), software=used, cluster=cluster)
        cost = layer(of, plan(ep=8, precision=precision))
        return float(cost.forward.kernels[0]), float(cost.backward.kernels[0])

    device = load_catalog().system("dgx-b200").device
    rate = device.memory_bandwidth * device.memory_efficiency
    values = 4 * 4096 * 768 / rate  # of one activation's output
    launch = 0.5 * device.kernel_latency
    apart, together = (kernels("mxfp8", fused=fused) for fused in (False, True))
    assert apart[0] - together[0] == pytest.approx((3 * 2 + 4.0625) * values + launch, rel=1e-6)
    assert apart[1] - together[1] == pytest.approx((5 * 2 + 2 * 4.0625) * values + launch, rel=1e-6)
    assert kernels("bf16", fused=True) == kernels("bf16", fused=False)


def test_a_dispatcher_that_sends_a_token_once_copies_it_where_it_arrives() -> None:
    """A token with 4 experts on 8 ranks meets 8 (1 - (7/8)^4) ranks, and has a row for each."""

    def seconds(dispatcher: str, rate: float, *, fused: bool = False) -> float:
        used = replace(job().software, expert_dispatcher=dispatcher, row_rate=rate)
        fast = replace(used, fused_experts=fused, traffic=1.0)
        return float(layer(replace(job(), software=fast), plan(ep=8)).forward.kernels[0])

    arrived, rows, tokens = 8 * (1 - (7 / 8) ** 4), 4.0, 4096
    saved = (1.0 + 3.0 * rows - arrived - rows) * tokens * 2048 * 2.0 * 2.0
    device = job().device
    bandwidth = device.memory_bandwidth * device.memory_efficiency
    difference = seconds("alltoall", 0.0) - seconds("hybridep", 0.0)
    assert difference == pytest.approx(saved / bandwidth, rel=1e-6)
    # kernels that fuse the experts' activation leave the copies as they are
    slow = 0.25 * bandwidth / device.sm_count
    longer = seconds("hybridep", slow, fused=True) - seconds("hybridep", 0.0, fused=True)
    assert longer > 3.0 * (arrived + rows) * tokens * 2048 * 2.0 * 2.0 / bandwidth


def test_an_uneven_router_slows_products_and_not_the_rest_of_the_layer() -> None:
    uneven = replace(job().software, expert_imbalance=1.5)
    even, slow = layer(job(), plan(ep=8)), layer(replace(job(), software=uneven), plan(ep=8))
    assert slow.products.kernels[0] > even.products.kernels[0]
    assert slow.core.kernels[0] == even.core.kernels[0]


def test_groups_are_neighbours_and_expert_tensor_ranks_are_inside() -> None:
    table = PlanTable.of([plan(ep=8, etp=2)])
    experts, inner = expert_groups(job(), table)
    assert (experts.size[0], experts.per_node[0], experts.nodes[0]) == (8, 4, 2)
    assert (inner.size[0], inner.per_node[0]) == (2, 2)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(DEGREES), st.sampled_from((1, 2)), st.integers(0, 3))
def test_ep_splits_experts_exactly_and_leaves_the_rest(ep: int, etp: int, zero: int) -> None:
    """Summed over the ranks of a stage, each parameter of experts is held by its replicas."""
    if ep * etp > 32:
        return
    data = {} if zero else {"dp_shard": 1, "dp_replicate": 32}
    table = PlanTable.of([plan(ep=ep, etp=etp, zero_stage=zero, **data)])
    model = job().model
    counts = layer_counts(model, (model.num_layers,))
    whole, experts = stage_parameters(model, table, counts), stage_experts(model, table, counts)
    all_of_them = sum(block.expert_parameters for block in model.blocks)
    replicas = int(table.expert_replicas[0])
    assert experts[0, 0] * 32 == all_of_them * replicas
    assert whole[0, 0] - experts[0, 0] == model.parameters - all_of_them
    # 12 bytes of states for each parameter, once in the cluster where ZeRO shares them out
    states = float(static_bytes(job(), table, Weights(whole, experts))[2][0, 0]) * 32
    expected = 12 * model.parameters
    if not zero:
        expected = 12 * (32 * (model.parameters - all_of_them) + replicas * all_of_them)
    assert states == pytest.approx(expected)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from((8, 16, 32, 64, 128)), st.sampled_from((1, 2, 4, 8)))
def test_more_experts_never_take_fewer_bytes_or_less_time(count: int, top: int) -> None:
    less, more = job(count, top), job(2 * count, top)
    shared = plan(ep=8)
    assert max(simulate(more, shared).peak_allocated) > max(simulate(less, shared).peak_allocated)
    few, many = layer(less, shared), layer(more, shared)
    assert many.forward.kernels[0] >= few.forward.kernels[0]
    assert many.routed.exposed[0] == few.routed.exposed[0]  # the same tokens, as often


@settings(max_examples=25, deadline=None)
@given(st.sampled_from((1, 2, 4)), st.sampled_from((1, 2, 8)))
def test_a_token_that_meets_more_experts_takes_longer(top: int, ep: int) -> None:
    few, many = layer(job(64, top), plan(ep=ep)), layer(job(64, 2 * top), plan(ep=ep))
    assert many.forward.seconds[0] > few.forward.seconds[0]
    assert many.backward.seconds[0] > few.backward.seconds[0]


def test_experts_reduce_their_gradients_among_those_who_hold_them() -> None:
    data = DataParallel.of(job(), PlanTable.of([plan(ep=8)]))
    assert data.experts is not None
    assert (data.shards[0], data.experts.shards[0]) == (32, 4)
    assert data.experts.shard.per_node[0] == 1  # 8 ranks apart: one of each node
    alone = DataParallel.of(job(), PlanTable.of([plan(ep=32)]))
    assert alone.experts is not None
    parameters = np.array([[1e9]])
    assert final_reduction(alone.experts, parameters)[0, 0] == 0.0


def test_buckets_of_experts_are_their_own() -> None:
    data = DataParallel.of(job(), PlanTable.of([plan(ep=8)]))
    shared, experts = np.array([[3e8]]), np.array([[2e8]])
    count, each = bucketed_reduction(data, shared + experts, experts)
    apart = bucketed_reduction(data, shared)
    assert data.experts is not None
    routed = bucketed_reduction(data.experts, experts)
    assert count[0, 0] == apart[0][0, 0] + routed[0][0, 0]
    whole = apart[0] * apart[1] + routed[0] * routed[1]
    assert (count * each)[0, 0] == pytest.approx(whole[0, 0])
