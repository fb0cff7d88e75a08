"""Plans that are just legal, and what degrees and micro-batches may be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parsim.cluster.hardware import Cluster
from parsim.errors import PlanError
from parsim.model.model import Model
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan.names import SCHEDULE_NAMES
from parsim.plan.rules.batch import microbatches_for
from parsim.plan.rules.degrees import divisors, tensor_rules, tensor_splits
from parsim.plan.rules.violation import violation
from parsim.schedule import SCHEDULES
from tests.parsim.plan.rules.broken import LEGAL


@pytest.mark.parametrize(
    "changes",
    [
        {"stage_layers": (0, 32)},
        {"schedule": "interleaved_1f1b", "v": 16},
        {"schedule": "interleaved_1f1b", "v": 17},
        {"dp_replicate": 1, "dp_shard": 2, "zero_stage": 3},
        {"rank_order": ("tp", "cp", "dp_shard", "dp_replicate", "pp")},
        {"tp": 8, "dp_replicate": 1, "sequence_parallel": False},
    ],
)
def test_plans_that_are_just_legal(
    model: Model, cluster: Cluster, changes: dict[str, object]
) -> None:
    plan = replace(LEGAL, **changes)  # type: ignore[arg-type]
    assert violation(plan, model, cluster) is None


def test_every_schedule_that_a_plan_may_name_is_built() -> None:
    assert set(SCHEDULE_NAMES) == set(SCHEDULES)


@pytest.mark.parametrize(
    ("kv_heads", "tp", "message"),
    [
        (8, 16, None),
        (1, 4, None),
        (2, 4, None),
        (2, 1, None),
        (
            6,
            4,
            "tp=4 neither divides nor is a multiple of num_key_value_heads=6; allowed: 1, 2, 3, 6, "
            "12, 24",
        ),
        (2, 3, "tp=3 does not divide num_attention_heads=32; allowed: 1, 2, 4, 8, 16, 32"),
    ],
)
def test_key_value_heads_are_shared_out_or_copied(
    cluster: Cluster, kv_heads: int, tp: int, message: str | None
) -> None:
    spec = replace(model_spec("llama3-8b"), num_key_value_heads=kv_heads)
    if kv_heads == 6:
        spec = replace(spec, num_attention_heads=24, ffn_hidden_size=12_288)
    plan = replace(LEGAL, tp=tp, pp=1, dp_replicate=max(16 // tp, 1), sequence_parallel=False)
    result = violation(plan, build_transformer(spec), cluster, (tensor_rules,))
    assert result == message


def test_what_tensor_parallelism_divides(model: Model) -> None:
    assert tensor_splits(model) == {
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "ffn_hidden_size": 14_336,
    }


def test_divisors() -> None:
    assert divisors(12) == [1, 2, 3, 4, 6, 12]
    assert divisors(12, 4) == [1, 2, 3, 4]
    assert divisors(1) == [1]


def test_microbatches_for_a_global_batch() -> None:
    assert microbatches_for(1536, 2, 16) == 48
    with pytest.raises(PlanError) as caught:
        microbatches_for(1536, 5, 16)
    assert str(caught.value) == (
        "global_batch_size=1536 is not divisible by microbatch_size=5 x dp=16 = 80; use a multiple "
        "of 80, or a microbatch_size x dp that divides 1536"
    )
