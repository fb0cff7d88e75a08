"""What is told of plans that are not legal, character by character."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsim.errors import PlanError, ScenarioError
from tests.parsim.scenario.messages.wrong_scenarios import NEAREST, changed, wrong


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "  tp: 4",
            "  tp: 8",
            "s.yaml:10:3 plan tp=8 does not divide num_attention_heads=12; "
            "allowed: 1, 2, 3, 4, 6, 12",
        ),
        (
            "  tp: 4",
            "  tp: 4\n  dp: 4",
            "s.yaml:9:1 plan world size mismatch: pp=1 x dp=4 x cp=1 x tp=4 = 16, but the "
            "cluster has "
            "8 devices; use dp=2",
        ),
        (
            "  tp: 4",
            "  tp: 3",
            "s.yaml:9:1 plan world size mismatch: pp=1 x dp=2 x cp=1 x tp=3 = 6, but the "
            "cluster has "
            "8 devices; pp x cp x tp = 3 must divide 8",
        ),
        (
            "nodes: 1",
            "nodes: 2\nplan: {pp: 16}",
            "s.yaml:7:1 plan more stages than layers: pp=16 x v=1 = 16 stages for 12 layers, "
            "embedding, head; use pp x v <= 14",
        ),
        (
            "global_batch_size: 16",
            "global_batch_size: 15",
            "s.yaml:8:3 training global_batch_size=15 is not divisible by microbatch_size=1 x dp=2 "
            "= 2; use a multiple of 2, or a microbatch_size x dp that divides 15",
        ),
        (
            "  tp: 4",
            "  num_microbatches: 3",
            "s.yaml:10:3 plan num_microbatches=3 x microbatch_size=1 x dp=8 = 24, but "
            "global_batch_size=16; use num_microbatches=2",
        ),
        (
            "  tp: 4",
            "  pp: 8\n  schedule: interleaved_1f1b\n  v: 2",
            "s.yaml:9:1 plan more stages than layers: pp=8 x v=2 = 16 stages for 12 layers, "
            "embedding, head; use pp x v <= 14",
        ),
        (
            "  tp: 4",
            "  pp: 2\n  v: 2\n  microbatch_size: 4\n  schedule: interleaved_1f1b",
            "s.yaml:13:3 plan schedule='interleaved_1f1b': pp=2 does not divide "
            "num_microbatches=1; "
            "allowed: multiples of 2",
        ),
        (
            "  tp: 4",
            "  schedule: 1f1",
            "s.yaml:10:3 plan schedule='1f1' is unknown (did you mean '1f1b'?); " + NEAREST,
        ),
        (
            "global_batch_size: 16",
            "global_batch_size: 16\n  precision: fp8",
            "s.yaml:9:3 training precision='fp8' has no peak on device a100-sxm-80gb; "
            "allowed: fp32, tf32, bf16, fp16, bf16_amp, bf16_pure, fp16_amp",
        ),
        (
            "  tp: 4",
            "  zero_stage: 4\n  tp: 2",
            "s.yaml:10:3 plan zero_stage=4 is unknown; allowed: 0, 1, 2, 3",
        ),
        (
            "  tp: 4",
            "  dp_shard: 8",
            "s.yaml:9:1 plan zero_stage=0 shards nothing, but dp_shard=8; use dp_replicate=8 or "
            "zero_stage 1, 2 or 3",
        ),
    ],
)
def test_plans_that_are_not_legal(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = changed(old, new)
    if "plan: {" in new:  # the short plan stands for the default one
        text = text.replace("plan:\n  tp: 4\n", "")
    error = wrong(tmp_path, text)
    assert str(error) == message
    assert type(error) is PlanError


def test_two_ways_to_write_replicas(tmp_path: Path) -> None:
    error = wrong(tmp_path, changed("  tp: 4", "  dp: 2\n  dp_shard: 4"))
    assert (type(error), str(error)) == (
        ScenarioError,
        "s.yaml:10:3 plan.dp cannot stand beside dp_shard; give dp, or dp_replicate and dp_shard "
        "(--set plan.dp=null takes dp out)",
    )


def test_precision_of_a_search_that_the_device_lacks(tmp_path: Path) -> None:
    text = changed("plan:\n  tp: 4\n", "").replace("dgx-a100", "dgx-1v")
    error = wrong(tmp_path, text.replace("batch_size: 16", "batch_size: 16\n  precision: bf16"))
    assert (type(error), str(error)) == (
        PlanError,
        "s.yaml:9:3 training precision='bf16' has no peak on device v100-sxm-32gb; "
        "allowed: fp32, fp16, fp16_amp",
    )


def test_what_the_plans_of_a_search_share(tmp_path: Path) -> None:
    text = changed("search:", "search:\n  common:\n    reduce_precision: fp16")
    error = wrong(tmp_path, text)
    assert (type(error), str(error)) == (
        PlanError,
        "s.yaml:13:5 search.common reduce_precision='fp16' is unknown; allowed: fp32, same",
    )
