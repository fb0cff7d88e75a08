"""A model with branches and unequal borders, simulated from end to end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.collective.collectives import p2p_time
from parsim.cost.job import Job
from parsim.cost.layer.layers import LayerCoster
from parsim.cost.software import software
from parsim.plan import Plan, PlanTable
from parsim.plan.rules.executor.runnable import unrunnable
from parsim.sim import simulate
from parsim.sim.drawing.timeline import build_timeline
from parsim.sim.events.step_run import events_step_time
from parsim.sim.recurrence.evaluate import Evaluation, evaluate
from tests.parsim.model.branchy import branchy

PLAN = Plan(
    pp=4,
    dp_replicate=2,
    num_microbatches=8,
    microbatch_size=4,
    stage_layers=(2, 2, 2, 3),
)


@pytest.fixture(scope="module")
def job() -> Job:
    return Job(
        model=branchy(),
        cluster=Cluster(system=load_catalog().system("dgx-a100"), num_nodes=1),
        software=software("generic"),
    )


@pytest.fixture(scope="module")
def evaluation(job: Job) -> Evaluation:
    return evaluate(job, PLAN, keep=True)


def test_paths_are_priced_one_after_another(job: Job) -> None:
    coster = LayerCoster(job, PlanTable.of([PLAN]))
    branched = job.model.blocks[0]
    apart = replace(branched, parts=branched.operators)
    assert coster.cost(branched).forward.kernels == coster.cost(apart).forward.kernels


def test_events_take_as_long_as_the_recurrence(job: Job, evaluation: Evaluation) -> None:
    seconds = events_step_time(evaluation.step)
    assert evaluation.step_time == pytest.approx(seconds, rel=1e-12)
    assert simulate(job, PLAN).step_time == pytest.approx(seconds, rel=1e-12)


def test_a_message_is_what_crosses_the_border(job: Job, evaluation: Evaluation) -> None:
    sent = 2.0 * 4 * np.array([1024 * 128, 256 * 256, 64 * 512])
    expected = [float(p2p_time(job.system, size, crosses=False, sharing=2.0)) for size in sent]
    assert evaluation.step.costs.hop[:, 0].tolist() == [*expected, 0.0]
    assert expected[0] > expected[1] > expected[2]


def test_throughput_is_in_samples(job: Job) -> None:
    prediction = simulate(job, PLAN)
    assert prediction.tokens_per_second == pytest.approx(64 / prediction.step_time)
    assert 0.0 < prediction.mfu < 1.0


def test_memory_falls_with_the_images(job: Job) -> None:
    ranks = simulate(job, PLAN).memory_by_rank
    kept = [rank["activations"] for rank in ranks]
    assert kept[0] > kept[1] > kept[2] > kept[3] > 0.0
    # four micro-batches in flight: in_norm 64, both paths' 64, relu 16 and wide 16, two layers
    assert kept[0] == 4 * 4 * 2 * 2 * 4096 * (64 + 64 + 16 + 16)


def test_a_timeline_is_drawn(evaluation: Evaluation) -> None:
    timeline = build_timeline(evaluation)
    assert {span.kind for span in timeline.spans} >= {"F", "B"}


def test_the_executor_refuses_it(job: Job) -> None:
    assert unrunnable(PLAN, job.model) == (
        "layers with branches (stage_4096) can be simulated but not run yet; use a model without it"
    )
