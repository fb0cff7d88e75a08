"""Attention of sequences that are packed with samples which see themselves alone."""

from __future__ import annotations

import re
from typing import Any

import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.layer.layers import LayerCoster
from parsim.cost.software import software
from parsim.errors import ModelError
from parsim.model.operators import Attention
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer, with_options
from parsim.plan import Plan, PlanTable
from parsim.plan.rules.executor.runnable import unrunnable
from parsim.sim import simulate


def job(name: str = "llama3-8b", **changes: Any) -> Job:
    return Job(
        model=build_transformer(with_options(model_spec(name), **changes)),
        cluster=Cluster(system=load_catalog().system("dgx-h100"), num_nodes=1),
        software=software("megatron-bridge"),
    )


def core_seconds(packed: Job, microbatch: int) -> list[float]:
    """Seconds of the fused kernels of a layer's attention, forward and backward."""
    table = PlanTable.of([Plan(dp_replicate=8, microbatch_size=microbatch)])
    coster, (layer,) = LayerCoster(packed, table), packed.model.kinds
    core = next(op for op in layer.operators if isinstance(op, Attention))
    steps = [step for step in coster.operators.of(core, None) if isinstance(step, tuple)]
    return [float(kernel.seconds[0]) for kernels in steps for kernel in kernels]


@pytest.mark.parametrize("length", [128, 512, 1024])
def test_packed_samples_cost_what_as_many_short_sequences_do(length: int) -> None:
    packed = core_seconds(job(seq_len=4096, sample_length=length), 1)
    assert packed == pytest.approx(core_seconds(job(seq_len=length), 4096 // length))


def test_a_sequence_that_is_one_sample_is_a_plain_one() -> None:
    assert core_seconds(job(seq_len=4096, sample_length=4096), 1) == core_seconds(
        job(seq_len=4096), 1
    )


@pytest.mark.parametrize("changes", [{}, {"lora_rank": 8}])
def test_shorter_samples_are_faster_and_change_nothing_else(changes: dict[str, Any]) -> None:
    plan = Plan(dp_shard=8, zero_stage=1, num_microbatches=4)
    whole, long, short = (
        simulate(job(seq_len=8192, sample_length=length, **changes), plan)
        for length in (0, 2048, 256)
    )
    assert short.step_time < long.step_time < whole.step_time
    assert short.fullest.peak_allocated == whole.fullest.peak_allocated
    assert short.breakdown["optimizer"] == pytest.approx(whole.breakdown["optimizer"])


def test_masked_scores_of_unfused_attention_are_computed_all_the_same() -> None:
    whole, packed = (
        job(seq_len=2048, fused_attention=False, sample_length=length) for length in (0, 256)
    )
    assert core_seconds(packed, 1) == core_seconds(whole, 1)


@pytest.mark.parametrize(
    ("name", "length", "message"),
    [
        ("llama3-8b", 8193, "sample_length=8193 must be from 0 .* to seq_len=8192"),
        ("deepseek-v3", 256, "sample_length beside kv_lora_rank"),
    ],
)
def test_contradictions_are_named(name: str, length: int, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        with_options(model_spec(name), seq_len=8192, sample_length=length)


def test_runs_refuse_packed_samples() -> None:
    model = job(seq_len=4096, sample_length=256).model
    assert re.search("sample_length=256: attention within packed", unrunnable(Plan(), model) or "")
