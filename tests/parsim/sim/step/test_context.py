"""Whole steps of plans with context parallelism and 8-bit products: tiers, timelines, folding."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.data.data_parallel import DataParallel
from parsim.cost.job import Job
from parsim.cost.layer.kept.activations import whole_parts
from parsim.cost.software import software
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import RANK_ORDER, CpCommType, Plan, PlanTable, Recompute
from parsim.sim import simulate
from parsim.sim.contention.contention import simulate_contention
from parsim.sim.memory.layer_moments import gathered_moment
from parsim.sim.step.folding import fold
from tests.parsim.sim.step.mesh import mesh_links

PLANS = {
    "data": Plan(cp=2, dp_replicate=8, num_microbatches=3),
    "tensor": Plan(cp=2, tp=4, dp_shard=2, zero_stage=1, sequence_parallel=True),
    "pipeline": Plan(cp=4, pp=4, num_microbatches=8, schedule="1f1b"),
    "interleaved": Plan(
        cp=2, pp=2, v=2, tp=2, dp_shard=2, zero_stage=2, num_microbatches=4,
        schedule="interleaved_1f1b",
    ),
    "pipelines inside replicas": Plan(
        cp=2, pp=2, tp=2, dp_shard=2, zero_stage=1, sequence_parallel=True, num_microbatches=4,
        rank_order=("dp_replicate", "dp_shard", "pp", "cp", "tp"),
    ),
    "gathered": Plan(
        cp=2, pp=2, tp=2, dp_replicate=2, num_microbatches=4, cp_comm_type=CpCommType.ALL_GATHER
    ),
    "by heads": Plan(
        cp=4, pp=2, v=2, tp=2, num_microbatches=4, schedule="interleaved_1f1b",
        sequence_parallel=True, cp_comm_type=CpCommType.A2A,
    ),
    "by heads, sharded": Plan(cp=8, dp_shard=2, zero_stage=3, cp_comm_type=CpCommType.A2A),
    "sharded": Plan(cp=16, zero_stage=3, num_microbatches=2),
    "copies": Plan(cp=2, dp_replicate=2, dp_shard=4, zero_stage=3, precision="fp8"),
    "fp8": Plan(cp=2, tp=2, pp=2, dp_replicate=2, num_microbatches=4, precision="fp8"),
    "rowwise": Plan(dp_shard=16, zero_stage=3, precision="fp8_rowwise"),
    "amp": Plan(dp_shard=16, zero_stage=3, precision="fp8_amp"),
}  # fmt: skip


@pytest.fixture(scope="module")
def job() -> Job:
    spec = replace(model_spec("llama3-8b"), num_layers=8, seq_len=4096)
    return Job(
        model=build_transformer(spec),
        cluster=Cluster(system=load_catalog().system("dgx-h100"), num_nodes=2),
        software=software("nemo"),
    )


@pytest.mark.parametrize("name", PLANS)
def test_events_and_recurrence_agree(job: Job, name: str) -> None:
    assert simulate(job, PLANS[name], tier="events") == simulate(job, PLANS[name])


@pytest.mark.parametrize("name", PLANS)
def test_the_timeline_is_as_long_as_the_step(job: Job, name: str) -> None:
    prediction = simulate(job, PLANS[name], timeline=True)
    assert prediction.timeline is not None
    last = max(span.end for span in prediction.timeline.spans)
    assert last <= prediction.step_time * (1 + 1e-12)
    assert last == pytest.approx(prediction.step_time, rel=0.02)  # less the stragglers' share


def test_shards_on_either_side_of_the_pipeline_ranks(job: Job) -> None:
    """dp 2 x cp 2 on nodes of 8 ranks: with pp 2 between them a group has a pair in each node."""
    inside = PLANS["pipelines inside replicas"]
    outside = replace(inside, rank_order=RANK_ORDER)
    shards = [DataParallel.of(job, PlanTable.of([plan])).shard for plan in (inside, outside)]
    assert [(float(s.size[0]), float(s.per_node[0]), float(s.nodes[0])) for s in shards] == [
        (4, 2, 2),
        (4, 4, 1),
    ]
    assert simulate(job, inside).step_time > simulate(job, outside).step_time
    shared = simulate_contention(job, inside)
    assert shared.alone == pytest.approx(simulate(job, inside).step_time, rel=1e-9)
    assert 1 - 1e-9 <= shared.slowdown < 1.05  # flows lie where the closed form puts them


def test_a_longer_ring_does_less_work_and_shows_more_of_its_messages(job: Job) -> None:
    """On 16 devices each of cp ranks has 1/cp of a sequence, and cp times more of them."""
    steps = {
        cp: simulate(job, Plan(cp=cp, dp_replicate=16 // cp, num_microbatches=cp))
        for cp in (1, 2, 4, 8)
    }
    exposed = [steps[cp].breakdown["exposed_communication"] for cp in steps]
    assert exposed == sorted(exposed)
    assert exposed[0] == 0.0
    times = [steps[cp].step_time for cp in steps]
    assert times == sorted(times)


@pytest.mark.parametrize("kind", list(CpCommType))
def test_alone_on_their_links_context_ranks_take_what_the_closed_form_says(
    job: Job, kind: CpCommType
) -> None:
    """Flows of a ring's neighbours, of a gather and of an all-to-all over two nodes."""
    plan = Plan(cp=16, tp=1, cp_comm_type=kind)
    if kind is CpCommType.A2A:  # 8 heads of keys and values
        plan = Plan(cp=8, dp_replicate=2, cp_comm_type=kind)
    shared = simulate_contention(job, plan)
    assert shared.alone == pytest.approx(simulate(job, plan).step_time, rel=1e-9)
    assert 1 - 1e-9 <= shared.slowdown < 1.05


def test_gathered_keys_and_values_stand_where_an_mlp_stood(job: Job) -> None:
    """K, V and their gradients of 4096 tokens, 1024 wide, and dO and dQ of 256, 4096 wide; 16 bit.

    What the layer's MLP kept is gone by then.
    """
    plans = [Plan(cp=16, cp_comm_type=kind) for kind in CpCommType]
    moments = [gathered_moment(job, PlanTable.of([plan]))[0] for plan in plans]
    gone = whole_parts(job.model.kinds[0], PlanTable.of(plans[:1]))["mlp"]
    values = 4 * 4096 * 1024 + 2 * 256 * 4096
    assert moments == [0, 0, 2 * values - gone[0], 0]
    assert 2 * values > gone[0]


def test_context_ranks_fold_like_replicas() -> None:
    """4 stages x dp 2 x cp 4 x tp 2, all alike: the stages; a slow rank splits its groups off."""
    links = mesh_links(4, 2, 2, cp=4)
    stages = [rank // 16 for rank in range(64)]
    assert fold(stages, *links).num_classes == 4
    slow = [(stage, rank == 0) for rank, stage in enumerate(stages)]
    folding = fold(slow, *links)
    assert 4 < folding.num_classes < 64
    # the slow rank, its tensor partner, its ring's other ranks and theirs, the other replica's
    assert folding.class_of[0] not in folding.class_of[1:]


@pytest.mark.parametrize("recompute", list(Recompute))
def test_the_executor_keeps_no_second_output(job: Job, recompute: Recompute) -> None:
    """Its cp ranks hold what as many data-parallel ones of half the sequences do."""
    on_executor = replace(job, software=software("executor-cuda"))
    halves = Plan(cp=2, dp_replicate=8, microbatch_size=2, recompute=recompute)
    whole = Plan(dp_replicate=16, microbatch_size=1, recompute=recompute)
    assert (
        simulate(on_executor, halves).peak_allocated == simulate(on_executor, whole).peak_allocated
    )
    more = (simulate(job, plan).peak_allocated[0] for plan in (halves, whole))
    kept = 0 if recompute is Recompute.FULL else 8  # outputs of 4096 tokens, 32 x 128 wide, 16 bit
    assert next(more) - next(more) == pytest.approx(kept * 4096 * 4096 * 2, rel=0.01, abs=4e7)
