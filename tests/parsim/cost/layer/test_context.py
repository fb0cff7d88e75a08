"""Context parallelism: one attention core counted by hand, and what must hold of any."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.collective.collectives import collective_time, p2p_time
from parsim.cost.collective.group_bandwidth import Groups, groups
from parsim.cost.data.data_parallel import DataParallel
from parsim.cost.job import Job
from parsim.cost.kernel.flash import flash_attention_time
from parsim.cost.kernel.kernels import memory_time
from parsim.cost.layer.attention import attention_core
from parsim.cost.layer.operator_parts import Exchange, seconds_of
from parsim.cost.software import software
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import CpCommType, Plan, PlanTable
from parsim.sim import simulate

LENGTH = 8192


def make_job(nodes: int = 1, length: int = LENGTH, **habits: object) -> Job:
    """Llama 3 8B of 2 layers: 32 heads of 128, 8 of them for keys and values."""
    spec = replace(model_spec("llama3-8b"), num_layers=2, seq_len=length)
    return Job(
        model=build_transformer(spec),
        cluster=Cluster(system=load_catalog().system("dgx-h100"), num_nodes=nodes),
        software=replace(software("nemo"), **habits),  # type: ignore[arg-type]
    )


def core(job: Job, **degrees: int) -> SimpleNamespace:
    op = job.model.attention
    assert op is not None
    parts = list(attention_core(job, PlanTable.of([Plan(**degrees)]), op))  # type: ignore[arg-type]
    exposed = [part.exposed for part in parts if isinstance(part, Exchange)]
    return SimpleNamespace(
        forward=parts[0],
        backward=parts[1],
        exposed_forward=exposed[0],
        exposed_backward=exposed[1],
    )


def test_two_ranks_run_two_blocks_each_and_hide_one_message() -> None:
    """4 x 4096 x 8192 x 32 x 128 / 2 = 274,877,906,944 FLOPs, in two blocks of 4096 keys."""
    job = make_job()
    times, device = core(job, cp=2, dp_replicate=4), job.device
    flops = 274_877_906_944
    ahead = 2 * flash_attention_time(device, "bf16", flops=flops / 2, seq_len=4096, backward=False)
    behind = 2 * flash_attention_time(
        device, "bf16", flops=2.5 * flops / 2, seq_len=4096, backward=True
    )
    # two blocks' results, 4 + 6 bytes a value: 4096 x 4096 outputs; 4096 x (4096 + 2 x 1024) back
    merged = memory_time(device, 10.0 * 4096 * 4096, 0)
    summed = memory_time(device, 10.0 * 4096 * 6144, 0)
    assert seconds_of(times.forward) == pytest.approx(float(ahead + merged), rel=1e-12)
    assert seconds_of(times.backward) == pytest.approx(float(behind + summed), rel=1e-12)
    # 4096 tokens x 2 x 8 x 128 values of 2 bytes = 16,777,216 bytes: 47 us on the wire, a block 250
    assert times.exposed_forward == times.exposed_backward == 0.0


def test_what_a_block_does_not_hide_shows() -> None:
    """On links of 1 % the one message of two ranks takes longer than the block beside it."""
    job = make_job()
    slow = replace(job.system, intra=replace(job.system.intra, bandwidth=4.5e9))
    job = replace(job, cluster=replace(job.cluster, system=slow))
    times = core(job, cp=2, dp_replicate=4)
    message = p2p_time(slow, 16_777_216.0, crosses=False, sharing=0.0)
    block = flash_attention_time(
        job.device, "bf16", flops=274_877_906_944 / 2, seq_len=4096, backward=False
    )
    assert times.exposed_forward == pytest.approx(float(message - block), rel=1e-9)
    # backward: keys and values beside the first block, their gradients beside the last
    behind = flash_attention_time(
        job.device, "bf16", flops=2.5 * 274_877_906_944 / 2, seq_len=4096, backward=True
    )
    assert times.exposed_backward == pytest.approx(2.0 * float(message - behind), rel=1e-9)


def test_four_ranks_send_keys_and_gradients_together_in_between() -> None:
    """Backward of 4 blocks: messages of b, 2 b, 2 b, b, none of them hidden on a very slow link."""
    job = make_job()
    slow = replace(job.system, intra=replace(job.system.intra, bandwidth=4.5e7))
    job = replace(job, cluster=replace(job.cluster, system=slow))
    times = core(job, cp=4, dp_replicate=2)
    size = 16_777_216.0 / 2
    single, double = (p2p_time(slow, n * size, crosses=False, sharing=0.0) for n in (1.0, 2.0))
    block = flash_attention_time(
        job.device, "bf16", flops=2.5 * 274_877_906_944 / 2 / 4, seq_len=2048, backward=True
    )
    wanted = 2.0 * (single + double) - 4.0 * block
    assert times.exposed_backward == pytest.approx(float(wanted), rel=1e-6)


def test_beside_a_message_compute_loses_what_a_collective_takes() -> None:
    """All of it: nothing hides. Half: a short message shows for half of its time."""
    job = make_job()
    message = float(p2p_time(job.system, 16_777_216.0, crosses=False, sharing=0.0))
    for lost in (0.5, 1.0):
        system = replace(job.system, interference=lost)
        slowed = replace(job, cluster=replace(job.cluster, system=system))
        times = core(slowed, cp=2, dp_replicate=4)
        assert times.exposed_forward == pytest.approx(lost * message, rel=1e-12)
        assert times.exposed_backward == pytest.approx(2.0 * lost * message, rel=1e-12)


def test_gathered_keys_and_values_are_exposed() -> None:
    """8192 x 2 x 8 x 128 values of 2 bytes = 33,554,432 bytes over 4 ranks of a node."""
    job = make_job(cp_comm_type=CpCommType.ALL_GATHER)
    times = core(job, cp=4, dp_replicate=2)
    columns = np.array([4]), np.array([1]), np.array([8])
    where = groups(job.system, size=columns[0], stride=columns[1], world=columns[2])
    gather = collective_time(job.system, "all_gather", 33_554_432.0, where)
    scatter = collective_time(job.system, "reduce_scatter", 33_554_432.0, where)
    assert times.exposed_forward == pytest.approx(gather)
    assert times.exposed_backward == pytest.approx(gather + scatter)
    # one kernel over all keys, nothing to merge
    alone = flash_attention_time(
        job.device, "bf16", flops=274_877_906_944 / 2, seq_len=LENGTH, backward=False
    )
    assert seconds_of(times.forward) == pytest.approx(float(alone))


def test_heads_are_exchanged_four_times_in_either_direction() -> None:
    """2048 tokens a rank; queries and outputs 32 x 128 wide, keys and values 8 x 128, 2 bytes.

    16,777,216 and 4,194,304 bytes. One kernel over all keys, and copies ahead of and behind each
    exchange: 2 x 2 x 41,943,040 bytes.
    """
    job = make_job(cp_comm_type=CpCommType.A2A)
    times = core(job, cp=4, dp_replicate=2)
    columns = np.array([4]), np.array([1]), np.array([8])
    where = groups(job.system, size=columns[0], stride=columns[1], world=columns[2])
    wide, narrow = (
        collective_time(job.system, "all_to_all", size, where) for size in (16_777_216, 4_194_304)
    )
    assert times.exposed_forward == pytest.approx(2 * (wide + narrow))
    assert times.exposed_backward == pytest.approx(2 * (wide + narrow))
    flops = 274_877_906_944 / 2
    alone = flash_attention_time(job.device, "bf16", flops=flops, seq_len=LENGTH, backward=False)
    copied = memory_time(job.device, 4.0 * 41_943_040, 8)
    assert seconds_of(times.forward) == pytest.approx(float(alone + copied))


def test_heads_fewer_than_ranks_are_copied_ahead_of_the_exchange() -> None:
    """1024 tokens a rank on 8 of them, of 2 heads of keys: 32 x 128 wide and 8 x 128."""
    job = make_job(cp_comm_type=CpCommType.A2A, kv_heads="copied")
    grouped = replace(model_spec("llama3-8b"), num_layers=2, num_key_value_heads=2)
    few = replace(job, model=build_transformer(grouped))
    swapped = core(few, cp=8).exposed_forward
    assert swapped == core(job, cp=8).exposed_forward
    assert (
        core(few, cp=2, dp_replicate=4).exposed_forward
        < core(job, cp=2, dp_replicate=4).exposed_forward
    )


def test_a_plan_says_what_its_software_would_not() -> None:
    """Each way to exchange is named by the plan, or is the habit of the stack."""
    for kind in (CpCommType.P2P, CpCommType.ALL_GATHER, CpCommType.A2A):
        named = core(make_job(), cp=4, dp_replicate=2, cp_comm_type=kind)
        usual = core(make_job(cp_comm_type=kind), cp=4, dp_replicate=2)
        assert seconds_of(named.backward) == seconds_of(usual.backward)
        assert named.exposed_backward == usual.exposed_backward


@pytest.mark.parametrize(("cp", "share"), [(1, 1.0), (2, 1.5), (4, 1.75), (8, 1.875)])
def test_the_last_rank_of_a_plain_cut_is_slowest(cp: int, share: float) -> None:
    """Rank r of cp has (r + 1/2) / cp of the keys on average: the last (2 - 1/cp) of the mean."""
    latency = {"kernel_latency": 1e-15}
    job = make_job(cp_comm_type=CpCommType.ALL_GATHER)
    device = replace(job.device, **latency)  # type: ignore[arg-type]
    job = replace(job, cluster=replace(job.cluster, system=replace(job.system, device=device)))
    plain = replace(job, software=replace(job.software, context_balanced=False))
    even, uneven = core(job, cp=cp), core(plain, cp=cp)
    assert seconds_of(uneven.forward) / seconds_of(even.forward) == pytest.approx(share, rel=1e-6)


@given(
    cp=st.sampled_from([1, 2, 4, 8]),
    links=st.floats(1, 100),
    exchange=st.sampled_from(list(CpCommType)[1:]),
    zero=st.sampled_from([0, 1, 3]),
)
def test_more_bandwidth_is_never_slower(
    cp: int, links: float, exchange: CpCommType, zero: int
) -> None:
    job = make_job(2, cp_comm_type=exchange)
    plan = Plan(cp=cp, dp_replicate=16 // cp)
    if zero:
        plan = replace(plan, dp_replicate=1, dp_shard=16 // cp, zero_stage=zero)
    intra = replace(job.system.intra, bandwidth=job.system.intra.bandwidth * links)
    better = replace(job, cluster=replace(job.cluster, system=replace(job.system, intra=intra)))
    assert simulate(better, plan).step_time <= simulate(job, plan).step_time * (1 + 1e-12)


def parallel(job: Job, plan: Plan) -> DataParallel:
    return DataParallel.of(job, PlanTable.of([plan]))


def shape(where: Groups) -> tuple[int, ...]:
    """Ranks of a group, of them in one node, and its nodes."""
    return tuple(int(column[0]) for column in (where.size, where.per_node, where.nodes))


def test_gradients_are_reduced_over_replicas_and_context_together() -> None:
    """tp 2, cp 2, dp 4: 8 ranks two apart, without ZeRO in an all-reduce, with it in shards."""
    job = make_job(2)
    whole = parallel(job, Plan(tp=2, cp=2, dp_replicate=4))
    assert shape(whole.replicate) == (8, 4, 2)
    assert shape(whole.shard) == (1, 1, 1)
    assert whole.shards.tolist() == [1]
    for stage in (1, 2, 3):
        split = parallel(job, Plan(tp=2, cp=2, dp_shard=4, zero_stage=stage))
        assert shape(split.replicate) == (1, 1, 1)
        assert shape(split.shard) == (8, 4, 2)
        assert split.shards.tolist() == [8]
    both = parallel(job, Plan(tp=2, cp=2, dp_shard=2, dp_replicate=2, zero_stage=1))
    assert shape(both.replicate) == (2, 1, 2)
    assert shape(both.shard) == (4, 4, 1)


def test_shards_over_context_alone() -> None:
    job = make_job()
    plan = Plan(cp=8, zero_stage=3)
    alone = simulate(job, Plan(dp_shard=8, zero_stage=3))
    assert simulate(job, plan).memory["optimizer"] == alone.memory["optimizer"]
    assert simulate(job, plan).memory["parameters"] == alone.memory["parameters"]


@pytest.mark.parametrize("cp", [2, 4, 8])
def test_a_rank_keeps_its_share_of_the_tokens(cp: int) -> None:
    job = make_job()
    alone = simulate(job, Plan(dp_replicate=8)).memory["activations"]
    kept = simulate(job, Plan(dp_replicate=8 // cp, cp=cp)).memory["activations"]
    # one tensor of the size of attention's output more, see cost/layer/kept/activations.py
    more = 2 * LENGTH / cp * 4096 * 2
    assert kept == pytest.approx(alone / cp + more)
