"""Copies of gradients that DeepSpeed's optimizers make at the update, counted by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from parsim.cost.software import software
from parsim.plan import Plan, PlanTable, Recompute
from parsim.sim import Prediction, simulate
from parsim.sim.memory.reserved import SEGMENT
from parsim.sim.memory.update_moment import update_copies
from tests.parsim.sim.conftest import gpt_job

STACK = "megatron-deepspeed-2022"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, 6.0),  # one replica: 2 joined, 4 widened
        ({"dp_replicate": 4}, 8.0),  # FP16_Optimizer: 4 widened, 4 joined
        ({"dp_shard": 4, "zero_stage": 1}, 1.5),
        ({"dp_shard": 4, "zero_stage": 2}, 1.5),
        ({"dp_shard": 4, "zero_stage": 3}, 0.0),
        ({"dp_shard": 4, "zero_stage": 1, "gradient_precision": "fp32"}, 0.0),
        (
            {"dp_shard": 4, "zero_stage": 1, "gradient_precision": "fp32", "precision": "bf16"},
            2.0,  # BF16_Optimizer: the whole sum, in bf16, to be all-reduced
        ),
    ],
)
def test_bytes_of_a_parameter(fields: dict[str, object], expected: float) -> None:
    plan = Plan(**{"precision": "fp16", "gradient_precision": "same", **fields})  # type: ignore[arg-type]
    table, ones = PlanTable.of([plan]), np.array([[1.0]])
    job = replace(gpt_job(), software=software(STACK))
    assert float(update_copies(job, table, ones, table.shards)[0, 0]) == expected
    other = replace(job, software=software("megatron-2022"))
    assert float(update_copies(other, table, ones, table.shards)[0, 0]) == 0.0


def few_tokens(**fields: object) -> Prediction:
    """A step of one node under DeepSpeed with 16-bit gradients and little to keep."""
    job = gpt_job()
    job = replace(job, software=software(STACK), cluster=replace(job.cluster, num_nodes=1))
    common = {"precision": "fp16", "gradient_precision": "same", "recompute": Recompute.FULL}
    return simulate(job, Plan(**{"num_microbatches": 2, **common, **fields}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "each"), [({"tp": 8}, 2 + 2 + 12 + 6), ({"dp_replicate": 8}, 2 + 2 + 12 + 8)]
)
def test_the_update_is_the_peak_where_no_rank_shares_states_out(
    fields: dict[str, object], each: float
) -> None:
    """Parameters, gradients, the optimizer's states and copies; nothing of a backward is left."""
    prediction = few_tokens(**fields)
    expected = each * prediction.memory["parameters"] / 2 + software(STACK).workspace
    assert prediction.peak_allocated == pytest.approx((expected,), rel=1e-9)
    assert sum(prediction.memory.values()) == pytest.approx(expected, rel=1e-9)
    for name in ("activations", "logits", "communication", "gathered"):
        assert prediction.memory[name] == 0.0


def test_gradients_of_other_shards_are_gone_by_the_update() -> None:
    """2 P + (2 + 12 + 6) P / 8 is below a backward's 2 P + 2 P + 12 P / 8 and activations."""
    prediction = few_tokens(dp_shard=8, zero_stage=1)
    memory = prediction.memory
    assert memory["gradients"] == pytest.approx(memory["parameters"])
    assert memory["activations"] > 0.0


def test_copies_are_reserved_beside_what_a_backward_leaves_cached() -> None:
    """A shard's 6 bytes a parameter come on top; that the plan fits does not hang on them."""
    prediction = few_tokens(dp_shard=8, zero_stage=1)
    allocated, share = prediction.peak_allocated[0], software(STACK).reserved_share
    copies = 6.0 / 8 * prediction.memory["parameters"] / 2
    expected = allocated * (1.0 + share) + copies
    assert prediction.peak_reserved[0] == pytest.approx(expected, abs=SEGMENT)
    assert prediction.fullest.peak_reserved == prediction.peak_reserved[0]


def test_a_backward_s_cache_stays_reserved_where_the_update_is_the_peak() -> None:
    """Reserved are the peak's own share, and the copies above a backward's peak, the lower one."""
    alike = few_tokens(dp_replicate=8, gradient_precision="fp32").memory
    narrow = sum(alike.values()) - alike["gradients"] / 2  # the same backward with 16-bit sums
    prediction = few_tokens(dp_replicate=8)
    allocated, share = prediction.peak_allocated[0], software(STACK).reserved_share
    uncached = narrow + 8.0 * prediction.memory["parameters"] / 2 - allocated
    expected = allocated * (1.0 + share) + uncached
    assert prediction.peak_reserved[0] == pytest.approx(expected, abs=SEGMENT)
