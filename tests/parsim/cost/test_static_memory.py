"""Bytes of parameters, gradients and optimizer states against ZeRO and measured runs' formula."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.data.static_bytes import Weights, static_bytes
from parsim.cost.job import Job
from parsim.cost.software import software
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import Plan, PlanTable

GB = 1e9


def job() -> Job:
    system = load_catalog().system("dgx-a100")
    return Job(
        model=build_transformer(model_spec("gpt2")),
        cluster=Cluster(system=system, num_nodes=8),
        software=software("megatron-2021"),
    )


def static(parameters: float, plan: Plan) -> tuple[float, float, float]:
    parts = static_bytes(job(), PlanTable.of([plan]), Weights(np.array([[parameters]])))
    return float(parts[0][0, 0]), float(parts[1][0, 0]), float(parts[2][0, 0])


def sharded(zero_stage: int, dp: int) -> Plan:
    shards = 1 if zero_stage == 0 else dp
    return Plan(zero_stage=zero_stage, dp_shard=shards, dp_replicate=dp // shards)


@pytest.mark.parametrize(("zero_stage", "gigabytes"), [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_figure_1_of_the_zero_paper(zero_stage: int, gigabytes: float) -> None:
    """7.5 B parameters on 64 devices, 2 + 2 + 12 bytes (Rajbhandari et al. 2020, figure 1)."""
    plan = replace(sharded(zero_stage, 64), gradient_precision="same")
    assert sum(static(7.5e9, plan)) / GB == pytest.approx(gigabytes, rel=0.015)


@pytest.mark.parametrize(
    ("zero_stage", "expected"),
    [
        (0, (2.0, 4.0, 12.0)),
        (1, (2.0, 4.0, 12.0 / 8)),
        (2, (2.0, 4.0 / 8, 12.0 / 8)),
        (3, (2.0 / 8, 4.0 / 8, 12.0 / 8)),
    ],
)
def test_bytes_per_parameter(zero_stage: int, expected: tuple[float, float, float]) -> None:
    """16-bit parameters, fp32 gradients, fp32 master copy and two moments."""
    assert static(1.0, sharded(zero_stage, 8)) == expected


def test_replicas_of_shards_hold_the_same() -> None:
    plan = Plan(zero_stage=3, dp_shard=8)
    assert static(1e9, plan) == static(1e9, replace(plan, dp_replicate=4))


@pytest.mark.parametrize("dp", [1, 2, 4, 8, 64])
def test_distributed_optimizer(dp: int) -> None:
    """P (2 + 4 + 12/dp): what 15 B200 runs of Megatron-Core allocate (SimuMax, 0.5 % mean)."""
    plan = Plan(zero_stage=1, dp_shard=dp) if dp > 1 else Plan()
    assert sum(static(1e9, plan)) == pytest.approx(1e9 * (2 + 4 + 12 / dp), rel=1e-15)


@pytest.mark.parametrize(
    ("precision", "total"),
    [("fp32", 16.0), ("bf16", 18.0), ("bf16_amp", 16.0), ("bf16_pure", 2 + 4 + 4.0)],
)
def test_precisions(precision: str, total: float) -> None:
    assert sum(static(1.0, Plan(precision=precision))) == total


@pytest.mark.parametrize("gradients", ["fp32", "same"])
def test_fsdp_over_fp32_parameters(gradients: str) -> None:
    """4 + 4 + 8: the shards are the master copy, whatever the plan says of 16-bit gradients."""
    titan = replace(job(), software=software("torchtitan"))
    plan = replace(sharded(3, 8), gradient_precision=gradients)
    table, ones = PlanTable.of([plan]), np.array([[1.0]])
    assert [float(part[0, 0]) for part in static_bytes(titan, table, Weights(ones))] == [
        0.5,
        0.5,
        1.0,
    ]
    whole = PlanTable.of([Plan()])
    assert sum(float(part[0, 0]) for part in static_bytes(titan, whole, Weights(ones))) == 18.0


@pytest.mark.parametrize(
    ("zero_stage", "microbatches", "gradients"), [(3, 4, 4.0), (3, 1, 0.5), (2, 4, 0.5)]
)
def test_gradients_that_add_up_whole(zero_stage: int, microbatches: int, gradients: float) -> None:
    """FSDP without a reduction keeps gradients of several micro-batches unsharded."""
    used = replace(job(), software=replace(job().software, sums_whole=True))
    plan = replace(sharded(zero_stage, 8), num_microbatches=microbatches)
    parts = static_bytes(used, PlanTable.of([plan]), Weights(np.array([[1.0]])))
    assert float(parts[1][0, 0]) == gradients


@pytest.mark.parametrize("zero_stage", [1, 2, 3])
def test_context_parallel_ranks_share_states_out(zero_stage: int) -> None:
    table = PlanTable.of([Plan(zero_stage=zero_stage, dp_shard=2, cp=4)])
    memory = sum(float(x[0, 0]) for x in static_bytes(job(), table, Weights(np.array([[1.0]]))))
    assert memory == sum(static(1.0, sharded(zero_stage, 8)))


@pytest.mark.parametrize(
    ("stack", "precision", "gradient_precision", "expected"),
    [
        ("megatron-deepspeed-2022", "bf16", "fp32", 6.0),  # 2 of backward beside the sum's 4
        ("megatron-deepspeed-2022", "bf16", "same", 2.0),
        ("megatron-deepspeed-2022", "fp16", "fp32", 4.0),
        ("megatron-lm", "bf16", "fp32", 4.0),  # hooks free each gradient
    ],
)
def test_gradients_that_stay_beside_their_sums(
    stack: str, precision: str, gradient_precision: str, expected: float
) -> None:
    plan = Plan(precision=precision, gradient_precision=gradient_precision, zero_stage=0)
    used = replace(job(), software=software(stack))
    assert static_bytes(used, PlanTable.of([plan]), Weights(np.array([[1.0]])))[1][0, 0] == expected
