"""Gradient buckets: Megatron's rule, the plan's size, and what a step's latencies come to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.data.buckets import bucket_count, mean_bucket
from parsim.cost.data.data_parallel import DataParallel
from parsim.cost.data.reduction import final_gather, num_buckets
from parsim.cost.job import Job
from parsim.cost.software import Software, software
from parsim.cost.step.step import step_costs
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import Plan, PlanTable

LLAMA = build_transformer(model_spec("llama3-8b"))
PARAMETERS = 8.03e9


def counts(stack: str = "nemo", rows: int = 1, **fields: object) -> list[float]:
    """Buckets of stages that hold a whole Llama 3 8B each."""
    table = PlanTable.of([Plan(**{"dp_shard": 256, "zero_stage": 1, **fields})])  # type: ignore[arg-type]
    job = job_of(software(stack))
    shape = np.full((rows, 1), float(LLAMA.parameters))
    count = bucket_count(job.software, table, shape, mean_bucket(job, table))
    return [float(number) for number in count[:, 0]]


def job_of(stack: Software, nodes: int = 32) -> Job:
    cluster = Cluster(system=load_catalog().system("dgx-h100"), num_nodes=nodes)
    return Job(model=LLAMA, cluster=cluster, software=stack)


def test_megatrons_buckets_are_of_whole_tensors_and_grow_with_replicas() -> None:
    """Three a layer (down; gate and up; both of attention), and either vocabulary table."""
    assert counts(dp_shard=8) == counts(dp_shard=40) == [3 * 32 + 2]
    small = mean_bucket(job_of(software("nemo")), PlanTable.of([Plan(tp=8, dp_shard=8)]))
    assert 40e6 < small[0] < 40e6 + LLAMA.kinds[0].parameters / 8
    # 256 million: the head, then a layer and the next one's down projection, ...
    assert counts(dp_shard=256) == counts(dp_shard=256, cp=2) == [26.0]
    assert counts(dp_shard=256, reduce_precision="same") == [26.0]  # counted in parameters


def test_later_stages_and_reductions_without_overlap_have_one_bucket() -> None:
    assert counts(rows=4, pp=4) == [26.0, 1.0, 1.0, 1.0]
    assert counts(overlap_grad_reduce=False) == [1.0]
    assert counts("generic", rows=2, pp=2) == [201.0, 201.0]


def test_a_stated_size_replaces_the_rule() -> None:
    assert counts("generic", bucket_bytes=4 * LLAMA.parameters / 10) == [10.0]
    table = PlanTable.of([Plan(dp_shard=256, zero_stage=1)])
    for size, buckets in ((1e12, 1.0), (40e6, 98.0)):
        mine = job_of(replace(software("nemo"), ddp_bucket_parameters=size))
        whole = np.full((1, 1), float(LLAMA.parameters))
        count = bucket_count(mine.software, table, whole, mean_bucket(mine, table))
        assert count[0, 0] == buckets


def test_gathers_pay_their_latency_once_a_bucket_too() -> None:
    """There are as many gathers as reductions; the whole in one call would pay one latency."""
    job = Job(
        model=build_transformer(model_spec("megatron-22b")),
        cluster=Cluster(system=load_catalog().system("dgx-h100"), num_nodes=32),
        software=software("nemo"),
    )
    table = PlanTable.of([Plan(dp_shard=256, zero_stage=1, overlap_param_gather=False)])
    data, parameters = DataParallel.of(job, table), np.full((1, 1), PARAMETERS)
    count = num_buckets(data, parameters)
    shown = final_gather(data, parameters, np.ones((1, 1)), np.ones(1))
    assert shown == pytest.approx(count * data.gather(parameters / count))
    assert shown[0, 0] > 1.1 * data.gather(parameters)[0, 0]


def test_later_ranks_gather_while_they_wait_for_their_first_microbatch() -> None:
    """A rank's one bucket shows as far as it outlasts the forwards of the ranks ahead."""
    job = Job(
        model=build_transformer(model_spec("megatron-22b")),
        cluster=Cluster(system=load_catalog().system("dgx-h100"), num_nodes=8),
        software=replace(software("nemo"), overlap=1.0),
    )
    plan = Plan(pp=4, dp_shard=16, zero_stage=1, num_microbatches=8, microbatch_size=4)
    costs = step_costs(job, PlanTable.of([plan]))
    assert costs.buckets[0, 0] > 1.0
    assert costs.buckets[1:, 0].tolist() == [1.0, 1.0, 1.0]
    assert costs.gather[0, 0] > 0.0
    assert costs.gather[1:, 0].tolist() == [0.0, 0.0, 0.0]
    data = DataParallel.of(job, PlanTable.of([plan]))
    parameters, forward = np.full((4, 1), PARAMETERS), np.ones((4, 1))
    single = data.gather(parameters)[1, 0]
    idle = np.array([[0.0], [0.25], [0.5], [2.0]]) * single
    shown = final_gather(data, parameters, forward, np.ones(1), idle=idle)
    assert shown[1:, 0] == pytest.approx([0.75 * single, 0.5 * single, 0.0])


@pytest.mark.parametrize("stack", ["generic", "nemo"])  # sums by kernels of their own, and fused
def test_sums_in_the_parameters_precision_are_those_in_fp32_where_that_is_it(stack: str) -> None:
    job = job_of(software(stack), nodes=1)
    plan = Plan(dp_replicate=8, microbatch_size=1, num_microbatches=4, precision="fp32")
    wide, same = (
        step_costs(job, PlanTable.of([replace(plan, gradient_precision=sums)])).backward
        for sums in ("fp32", "same")
    )
    assert (wide == same).all()
    narrow = [
        step_costs(
            job, PlanTable.of([replace(plan, precision="bf16", gradient_precision=sums)])
        ).backward
        for sums in ("fp32", "same")
    ]
    assert (narrow[0] > narrow[1]).all()
