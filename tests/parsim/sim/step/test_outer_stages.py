"""Stages that hold an embedding or a head alone, as in published runs of 30 layers in 32 stages."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.software import software
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.stages import even_cut, stage_borders
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer, with_options
from parsim.plan import Plan, PlanTable, Recompute
from parsim.plan.rules.violation import violation
from parsim.sim import simulate
from parsim.sim.memory.added_peaks import ranks_with_blocks
from parsim.sim.recurrence.evaluate import Evaluation, evaluate
from tests.parsim.sim.tiers import simulate_events

CUT = (0, *[1] * 30, 0)
PLAN = Plan(pp=16, v=2, schedule="interleaved_1f1b", num_microbatches=32, microbatch_size=2)


@pytest.fixture(scope="module")
def job() -> Job:
    """30 layers of GPT on two nodes of eight A100."""
    return Job(
        model=build_transformer(with_options(model_spec("gpt-3.6b"), num_layers=30)),
        cluster=Cluster(system=load_catalog().system("dgx-a100"), num_nodes=2),
        software=software("megatron-2021"),
    )


@pytest.fixture(scope="module")
def evaluation(job: Job) -> Evaluation:
    return evaluate(job, PLAN, keep=True)


def test_the_even_cut_leaves_the_outer_stages_none() -> None:
    assert even_cut(30, 32) == CUT
    assert even_cut(30, 31) == (*[1] * 30, 0)


def test_thirty_layers_on_sixteen_ranks_with_two_chunks(job: Job, evaluation: Evaluation) -> None:
    assert violation(PLAN, job.model, job.cluster) is None
    schedule, costs = evaluation.step.schedule(0), evaluation.step.costs
    assert (costs.forward > 0).all()
    assert (costs.backward > 0).all()
    same = costs.forward[1:-1]
    assert (same == same[0]).all()
    table = LayerTable.of(job, PlanTable.of([PLAN]))
    assert costs.parameters[0, 0] == job.model.layers[0].parameters
    last = job.model.layers[-1].parameters + 51_200 * job.model.border // 2048  # the tied table
    assert costs.parameters[-1, 0] == last
    assert table.before.forward.kernels[0] < same[0, 0]
    recorded = simulate_events(schedule, costs)
    assert evaluation.step_time == pytest.approx(recorded.step_time, rel=1e-12)
    assert simulate(job, PLAN).step_time == pytest.approx(recorded.step_time, rel=1e-12)


def test_messages_of_all_stages_are_alike(job: Job, evaluation: Evaluation) -> None:
    values = 2048 * 3072
    assert stage_borders(job.model, CUT) == (*[values] * 31, 0)
    hop = evaluation.step.costs.hop[:, 0]
    inside, across = hop[0], hop[7]
    assert 0.0 < inside < across
    expected = [across if stage in (7, 15, 23) else inside for stage in range(31)]
    assert hop.tolist() == [*expected, 0.0]


def test_explicit_cuts_are_those_of_the_even_one(job: Job) -> None:
    assert simulate(job, replace(PLAN, stage_layers=CUT)).step_time == simulate(job, PLAN).step_time


def test_a_cut_that_is_still_impossible(job: Job) -> None:
    plan = replace(PLAN, v=3, num_microbatches=32)
    assert violation(plan, job.model, job.cluster) == (
        "more stages than layers: pp=16 x v=3 = 48 stages for 30 layers, embedding, head; use "
        "pp x v <= 32"
    )


def headless_ranks(name: str) -> Job:
    spec = with_options(model_spec("llama3-70b"), num_layers=12, seq_len=4096)
    return Job(
        model=build_transformer(spec),
        cluster=Cluster(system=load_catalog().system("dgx-b200"), num_nodes=1),
        software=software(name),
    )


def test_memory_of_ranks_without_blocks_by_hand() -> None:
    """Four ranks: embedding, six layers, six layers, head; ZeRO-1 over two replicas."""
    h, tokens, vocab = 8192, 4096, 128_256
    plan = Plan(
        pp=4,
        dp_shard=2,
        zero_stage=1,
        num_microbatches=4,
        overlap_p2p=False,
        stage_layers=(0, 6, 6, 0),
    )
    job = headless_ranks("megatron-te-2025")
    workspace = job.software.workspace
    peaks = [sum(rank.values()) for rank in simulate(job, plan).memory_by_rank]
    state = 2 + 4 + 12 / 2
    # the lookup keeps nothing; a dense gradient of the table in 16 bit at the end of a backward
    assert peaks[0] == pytest.approx(vocab * h * state + 2 * vocab * h + workspace)
    # the final norm and the products' input are kept, then logits and what is around them
    kept = tokens * 4 * h
    head = 2 * tokens * vocab + 2 * vocab * h + 6 * tokens * h
    assert peaks[3] == pytest.approx((vocab + 1) * h * state + kept + head + workspace)
    assert min(peaks[1:3]) > 2 * peaks[0]


@pytest.mark.parametrize("name", ["megatron-te-2025", "executor-cuda", "torchtitan"])
@pytest.mark.parametrize("recompute", list(Recompute))
def test_ranks_without_blocks_need_less_than_those_with(name: str, recompute: Recompute) -> None:
    plan = Plan(
        pp=4,
        dp_shard=2,
        zero_stage=3,
        num_microbatches=4,
        stage_layers=(0, 6, 6, 0),
        recompute=recompute,
    )
    job = headless_ranks(name)
    prediction = simulate(job, plan)
    temporary = [rank["temporary"] for rank in prediction.memory_by_rank]
    assert temporary[1] == temporary[2] > 0.0
    evaluation = evaluate(job, plan, keep=True)
    counts = np.array([0.0, 6.0, 6.0, 0.0])[:, None]
    assert ranks_with_blocks(counts, evaluation.step.schedule(0)).tolist() == [
        False,
        True,
        True,
        False,
    ]


@pytest.mark.parametrize("schedule", ["zb_h1", "zb_h2"])
def test_backwards_in_two_of_an_embedding_alone(job: Job, schedule: str) -> None:
    cut = (0, *[2] * 14, 2)
    plan = Plan(pp=16, schedule=schedule, num_microbatches=32, stage_layers=cut)
    assert np.isfinite(simulate(job, plan).step_time)
    assert all(
        np.isfinite(list(rank.values())).all() for rank in simulate(job, plan).memory_by_rank
    )
