"""Every data and tensor parallelism gives the loss and gradients of one process.

All cases of a world size run in one launch; each is then judged by a test of its own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from tests.executor.launch import launch

WORKER = Path(__file__).parent / "workers" / "parallel.py"
TIMEOUT = 240

EXACT = 1e-6
"""Bound on loss and gradients in fp32: different orders of summation, nothing else."""

ROUNDED = 3e-2
"""Bound on gradients in bf16, whose values are 2^-8 = 4e-3 apart, against fp32."""

Case = dict[str, Any]


def case(model: str = "gpt", *, loss_parallel: bool = False, **plan: Any) -> Case:
    plan = {"precision": "fp32", "microbatch_size": 2, **plan}
    return {"model": model, "loss_parallel": loss_parallel, "plan": plan}


def counted(model: str, *, loss_parallel: bool = False, **plan: Any) -> Case:
    return {**case(model, loss_parallel=loss_parallel, **plan), "count": True}


SP: Case = {"sequence_parallel": True}
SMALL: Case = {"bucket_bytes": 2e4}  # several buckets even for the tiny model

TWO: dict[str, Case] = {
    "ddp": case(dp_replicate=2),
    "ddp, 2 micro-batches, full": case(
        dp_replicate=2, num_microbatches=2, recompute="full", **SMALL
    ),
    "ddp, not overlapped": case(dp_replicate=2, overlap_grad_reduce=False, **SMALL),
    "zero 1": case("llama", dp_shard=2, zero_stage=1, num_microbatches=2, **SMALL),
    "zero 2": case(dp_shard=2, zero_stage=2, num_microbatches=2, recompute="full"),
    "zero 3": case("llama", dp_shard=2, zero_stage=3, num_microbatches=2, recompute="selective"),
    "zero 3, bert": case("bert", dp_shard=2, zero_stage=3),
    "tp": case(tp=2, num_microbatches=2, recompute="selective"),
    "tp, llama": case("llama", tp=2),
    "tp, bert": case("bert", tp=2),
    "tp, loss": case(tp=2, loss_parallel=True),
    "tp + sp": case(tp=2, num_microbatches=2, **SP),
    "tp + sp, llama, full": case("llama", tp=2, recompute="full", **SP),
    "tp + sp + loss": case(tp=2, loss_parallel=True, **SP),
    "tp + sp + loss, bert": case("bert", tp=2, loss_parallel=True, **SP),
    "pipeline": case(pp=2, num_microbatches=4),
}
FOUR: dict[str, Case] = {
    "ddp": case("llama", dp_replicate=4),
    "zero 1": case(dp_shard=4, zero_stage=1, **SMALL),
    "zero 1, replicated": case(dp_replicate=2, dp_shard=2, zero_stage=1, num_microbatches=2),
    "zero 2": case(dp_shard=4, zero_stage=2, num_microbatches=2),
    "zero 3": case(dp_shard=4, zero_stage=3),
    "hsdp": case(dp_replicate=2, dp_shard=2, zero_stage=3, num_microbatches=2),
    "hsdp, zero 2": case("llama", dp_replicate=2, dp_shard=2, zero_stage=2, num_microbatches=3),
    "tp": case(tp=4),
    "tp + sp": case(tp=4, **SP),
    "tp + sp + loss, llama": case("llama-mha", tp=4, loss_parallel=True, **SP),
    "ddp x tp": case(dp_replicate=2, tp=2, num_microbatches=2, **SP, **SMALL),
    "zero 1 x tp": case("llama", dp_shard=2, tp=2, zero_stage=1, num_microbatches=2, **SP),
    "zero 2 x tp": case("llama", dp_shard=2, tp=2, zero_stage=2, recompute="full"),
    "zero 3 x tp": case(
        dp_shard=2, tp=2, zero_stage=3, num_microbatches=2, loss_parallel=True, **SP
    ),
    "zero 3 x tp, other order": case(
        "llama",
        dp_shard=2,
        tp=2,
        zero_stage=3,
        rank_order=("pp", "tp", "dp_replicate", "dp_shard", "cp"),
        **SP,
    ),
    "pipeline x ddp": case(pp=2, dp_replicate=2, num_microbatches=2, schedule="gpipe"),
    "pipeline x zero 1": case(pp=2, dp_shard=2, zero_stage=1, num_microbatches=4),
    "pipeline x zero 2": case(pp=2, dp_shard=2, zero_stage=2, num_microbatches=4),
    "pipeline x tp": case("llama", pp=2, tp=2, num_microbatches=4, loss_parallel=True, **SP),
}
BF16: dict[str, Case] = {
    "bf16 ddp": case(dp_replicate=2, precision="bf16", num_microbatches=2),
    "bf16 zero 1": case(dp_shard=2, zero_stage=1, precision="bf16"),
    "bf16 zero 3": case(dp_shard=2, zero_stage=3, precision="bf16"),
    "bf16 tp + sp": case(tp=2, precision="bf16", **SP),
    "bf16 sent as bf16": case(dp_replicate=2, precision="bf16", reduce_precision="same"),
    "amp ddp": case(dp_replicate=2, precision="bf16_amp"),
    "amp zero 3": case(dp_shard=2, zero_stage=3, precision="bf16_amp"),
    "amp tp + sp": case(tp=2, precision="bf16_amp", loss_parallel=True, **SP),
}
COUNTS: dict[str, tuple[Case, dict[str, int]]] = {
    # 2 layers: each border (attention, MLP) sums once forward, once backward: 2 * 2 * 2 = 8;
    # token table forward and logits backward: 2; logits are gathered whole
    "tp": (counted("llama", tp=2), {"all_reduce": 10, "all_gather_into_tensor": 1}),
    # as above with a gather on the other side of each sum; 3 for the loss (maximum, target, sum)
    # and one flat all-reduce for the gradients of all norms
    "tp + sp + loss": (
        counted("llama", tp=2, loss_parallel=True, **SP),
        {"all_reduce": 3, "allreduce": 1, "all_gather_into_tensor": 10,
         "reduce_scatter_tensor": 10},
    ),
}  # fmt: skip


def run(folder: Path, cases: dict[str, Case], ranks: int) -> list[dict[str, Any]]:
    file = folder / "cases.json"
    file.write_text(json.dumps(cases))
    return launch(WORKER, str(file), ranks=ranks, folder=folder, timeout=TIMEOUT)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    counts = {f"count {name}": described for name, (described, _) in COUNTS.items()}
    return run(tmp_path_factory.mktemp("two"), {**TWO, **BF16, **counts}, 2)


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run(tmp_path_factory.mktemp("four"), FOUR, 4)


def assert_exact(found: list[dict[str, Any]], name: str) -> None:
    assert found[0][name]["gradient"] <= EXACT, found[0][name]
    losses = [rank[name]["loss"] for rank in found if "loss" in rank[name]]
    assert losses
    assert max(losses) <= EXACT
    assert max(rank[name]["norm"] for rank in found) <= EXACT
    # a parameter of 1 is rounded by 6e-8, which is more of a small update than of a gradient
    assert max(rank[name]["update"] for rank in found) <= 10 * EXACT


@pytest.mark.distributed
@pytest.mark.parametrize("name", TWO)
def test_two_ranks_equal_one_process(two: list[dict[str, Any]], name: str) -> None:
    assert_exact(two, name)


@pytest.mark.distributed
@pytest.mark.parametrize("name", FOUR)
def test_four_ranks_equal_one_process(four: list[dict[str, Any]], name: str) -> None:
    assert_exact(four, name)


@pytest.mark.distributed
@pytest.mark.parametrize("name", BF16)
def test_bf16_is_near_fp32(two: list[dict[str, Any]], name: str) -> None:
    found = two[0][name]
    assert 0 < found["gradient"] <= ROUNDED, found
    assert max(rank[name]["loss"] for rank in two) <= 1e-3


@pytest.mark.distributed
@pytest.mark.parametrize("name", COUNTS)
def test_one_exchange_per_border(two: list[dict[str, Any]], name: str) -> None:
    found = dict(two[0][f"count {name}"])
    found.pop("wrap_tensor_autograd", None)  # what torch 2.13 makes of waiting
    assert found == COUNTS[name][1]


@pytest.mark.distributed
def test_which_mechanism_ran(two: list[dict[str, Any]], four: list[dict[str, Any]]) -> None:
    kinds = {name: two[0][name]["kind"] for name in ("ddp", "zero 1", "zero 3", "tp")}
    assert kinds == {"ddp": "ddp", "zero 1": "buckets", "zero 3": "fully_shard", "tp": "plain"}
    assert four[0]["ddp x tp"]["kind"] == "buckets"
