"""What is refused before anything runs, which mechanism a plan gets, and how errors are judged."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from executor.devices.machine import probe
from parsim.errors import InputError, PlanError
from parsim.model.transformer import build_transformer
from parsim.plan import Plan
from parsim.plan.rules.executor.runnable import unrunnable
from parsim.schedule import Schedule, build_schedule

torch = pytest.importorskip("torch")

from executor.measure.gradients import max_relative_error  # noqa: E402
from executor.parallel.data import data_kind  # noqa: E402
from executor.parallel.experts import ranks_by_share  # noqa: E402
from executor.parallel.precision import edge_dtype, gradient_dtype, storage_dtype, wire_dtype  # noqa: E402
from executor.parallel.refused import (  # noqa: E402
    check_context,
    check_experts,
    check_parallel,
    check_split_backward,
    check_splits,
)
from tests.executor.workers.specs import GPT, LLAMA, MIXTRAL  # noqa: E402

BASE = Plan(precision="fp32")

REFUSED: dict[str, tuple[Plan, str]] = {
    "uneven batches": (
        replace(BASE, dp_replicate=2, tp=2, num_microbatches=3, replica_microbatches=(3, 1)),
        "replica_microbatches=[3, 1] can be run with data parallelism alone, where replicas meet "
        "once a step: use tp=1, pp=1, cp=1, ep=1, zero_stage 0 or 1 and sync_batch_norm=false, or "
        "leave it out",
    ),
    "fp16 gradients in fp16": (
        replace(BASE, precision="fp16", gradient_precision="same"),
        "precision='fp16' with gradient_precision='same': small gradients would become zero when "
        "they are divided by the scale of the loss; use gradient_precision='fp32'",
    ),
    **{
        name: (
            replace(BASE, precision=name),
            f"precision={name!r}: products of 8 bit or less are predicted but cannot be run here; "
            f"use precision='bf16' or 'bf16_amp'",
        )
        for name in ("fp8", "fp8_rowwise", "fp8_amp", "mxfp8", "nvfp4", "mxfp4")
    },
    "nobody averages": (
        replace(BASE, dp_shard=2),
        "zero_stage=0 with dp_shard=2: nothing would average the gradients over dp_shard; use "
        "dp_replicate=2, dp_shard=1",
    ),
    "gradient shards in bf16": (
        replace(BASE, precision="bf16", dp_shard=2, zero_stage=2, gradient_precision="same"),
        "precision='bf16' with zero_stage=2 and gradient_precision='same': shares of gradients are "
        "kept in fp32 there, which takes twice the bytes; use gradient_precision='fp32', or "
        "zero_stage 0 or 1",
    ),
    "micro-batches added up in bf16": (
        replace(
            BASE,
            precision="bf16_amp",
            dp_shard=2,
            dp_replicate=2,
            zero_stage=3,
            reduce_precision="same",
            num_microbatches=2,
        ),
        "precision='bf16_amp' with zero_stage=3, dp_replicate=2 and reduce_precision='same': "
        "gradients of the 2 micro-batches would be added up in bf16, not in fp32; use "
        "reduce_precision='fp32', dp_replicate=1, or zero_stage 0 or 1",
    ),
    "sequence without tensor": (
        replace(BASE, sequence_parallel=True),
        "sequence_parallel=true needs tp > 1; use sequence_parallel=false",
    ),
}


DROPOUT = (
    "cp=2: attention with dropout cannot be put together from blocks of keys here; use "
    "cp_comm_type a2a, dropout: false in the model section, or cp=1"
)
CONTEXT: dict[str, tuple[dict[str, Any], bool, str, str | None]] = {
    "alone": ({}, False, "cpu", None),
    "dropout": ({}, True, "cpu", DROPOUT),
    "dropout without context": ({"cp": 1}, True, "cpu", None),
    "fp32 on a GPU": (
        {},
        False,
        "cuda",
        "cp=2 with precision='fp32': blocks of attention run in 16 bit on a GPU; use "
        "precision='bf16' or 'bf16_amp', or cp=1",
    ),
    "bf16 on a GPU": ({"precision": "bf16"}, False, "cuda", None),
}


@pytest.mark.parametrize("name", CONTEXT)
def test_what_context_parallelism_cannot_do(name: str) -> None:
    changes, dropout, device, message = CONTEXT[name]
    plan, spec = replace(BASE, **{"cp": 2, **changes}), replace(GPT, dropout=dropout)
    check_parallel(plan)
    if message is None:
        check_context(plan, spec, device)
    else:
        with pytest.raises(PlanError) as refused:
            check_context(plan, spec, device)
        assert str(refused.value) == message
    if device == "cpu":  # the planner says the same
        assert unrunnable(plan, build_transformer(spec)) == message


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    plan, message = REFUSED[name]
    with pytest.raises(PlanError) as refused:
        check_parallel(plan)
    assert str(refused.value) == message


SPLIT = Schedule.from_csv("0F0,0I0,0W0\n1F0,1I0,1W0\n", name="own.csv")


@pytest.mark.parametrize("zero_stage", [2, 3])
@pytest.mark.parametrize("precision", ["bf16", "bf16_amp"])
def test_split_backward_of_gathered_bf16_is_refused(zero_stage: int, precision: str) -> None:
    plan = Plan(pp=2, dp_shard=2, zero_stage=zero_stage, precision=precision)
    with pytest.raises(PlanError, match=r"own\.csv splits .* add up gradients in bf16"):
        check_split_backward(plan, SPLIT, experts=False)
    check_split_backward(plan, build_schedule("1f1b", pp=2, num_microbatches=1), experts=False)
    check_split_backward(replace(plan, precision="fp32"), SPLIT, experts=False)
    check_split_backward(replace(plan, zero_stage=1), SPLIT, experts=False)


@pytest.mark.parametrize("mixes", [True, False])
def test_split_backward_under_tensor_parallelism(
    mixes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("executor.parallel.refused.SPLIT_BACKWARD_MIXES_OUTPUTS", mixes)
    plan = Plan(pp=2, tp=2)
    if mixes:
        with pytest.raises(PlanError, match="mix up the gradients of tp=2's split projections"):
            check_split_backward(plan, SPLIT, experts=False)
        with pytest.raises(PlanError, match="mix up the gradients of experts' routers"):
            check_split_backward(replace(plan, tp=1), SPLIT, experts=True)
    else:
        check_split_backward(plan, SPLIT, experts=True)
    check_split_backward(plan, build_schedule("1f1b", pp=2, num_microbatches=1), experts=False)
    check_split_backward(replace(plan, tp=1), SPLIT, experts=False)


def test_windows_are_refused_in_fp32_on_a_gpu_but_of_changed_scores() -> None:
    """A kernel knows windows in 16 bit; capped scores are computed by no kernel, in any dtype."""
    plain = replace(LLAMA, window=5)
    with pytest.raises(PlanError, match="window=5 with precision='fp32'"):
        check_context(BASE, plain, "cuda")
    check_context(replace(BASE, precision="bf16_amp"), plain, "cuda")
    check_context(BASE, replace(plain, attention_cap=50.0), "cuda")


KINDS: dict[str, tuple[Plan, str]] = {
    "one rank": (BASE, "plain"),
    "ddp": (replace(BASE, dp_replicate=2), "ddp"),
    "ddp without overlap": (replace(BASE, dp_replicate=2, overlap_grad_reduce=False), "buckets"),
    "ddp under a pipeline": (replace(BASE, dp_replicate=2, pp=2), "buckets"),
    "a pipeline alone": (replace(BASE, pp=2), "plain"),
    "ddp of split parameters": (replace(BASE, dp_replicate=2, tp=2), "buckets"),
    "bf16 parameters": (replace(BASE, precision="bf16"), "buckets"),
    "zero 1": (replace(BASE, dp_shard=2, zero_stage=1), "buckets"),
    "zero 2": (replace(BASE, dp_shard=2, zero_stage=2), "fully_shard"),
    "context ranks": (replace(BASE, cp=2), "ddp"),
    "context ranks, zero 1": (replace(BASE, cp=2, zero_stage=1), "buckets"),
}


@pytest.mark.parametrize("name", KINDS)
def test_mechanism(name: str) -> None:
    plan, kind = KINDS[name]
    assert data_kind(plan) == kind


def test_dtypes_of_pure_bf16() -> None:
    plan = Plan(precision="bf16", reduce_precision="same")
    dtypes = [f(plan) for f in (storage_dtype, gradient_dtype, wire_dtype, edge_dtype)]
    assert dtypes == [torch.bfloat16, torch.float32, torch.bfloat16, torch.bfloat16]


def test_shards_are_fp32_and_gathered_as_bf16() -> None:
    plan = Plan(precision="bf16", dp_shard=2, zero_stage=3)
    assert (storage_dtype(plan), edge_dtype(plan)) == (torch.float32, torch.bfloat16)


@pytest.mark.parametrize(
    ("changes", "sequence", "message"),
    [
        ({}, False, "tp=3 does not divide num_attention_heads=4; use a tp that divides it"),
        (
            {"num_attention_heads": 6, "num_key_value_heads": 6, "ffn_hidden_size": 66},
            False,
            "tp=3 does not divide padded_vocab_size=64; use padded_vocab_size=66",
        ),
        (
            {
                "num_attention_heads": 6,
                "num_key_value_heads": 6,
                "ffn_hidden_size": 66,
                "padded_vocab_size": 66,
            },
            True,
            "tp=3 does not divide seq_len=16; use a tp that divides it",
        ),
        (
            {"num_attention_heads": 6, "num_key_value_heads": 2},
            False,
            "tp=3 does not divide num_key_value_heads=2; use a tp that divides it or is a "
            "multiple of it",
        ),
    ],
)
def test_sizes_that_do_not_split(changes: dict[str, Any], sequence: bool, message: str) -> None:
    with pytest.raises(PlanError) as refused:
        check_splits(replace(GPT, **changes), 3, sequence_parallel=sequence)
    assert str(refused.value) == message


def test_fewer_key_value_heads_than_ranks_are_copied_where_ranks_stay_together() -> None:
    multi_query = replace(GPT, num_key_value_heads=1)
    check_splits(multi_query, 4, sequence_parallel=True)
    with pytest.raises(PlanError) as refused:
        check_splits(multi_query, 4, sequence_parallel=False, copies=False)
    assert str(refused.value) == (
        "tp=4 does not divide num_key_value_heads=1; use a tp that divides it"
    )


def test_error_is_relative_to_the_parameter() -> None:
    expected = {"a": torch.tensor([2.0, 4.0]), "b": torch.tensor([0.5])}
    result = {"a": torch.tensor([2.0, 4.0]), "b": torch.tensor([0.6])}
    worst = max_relative_error(result, expected)
    assert worst.parameter == "b"
    assert worst.error == pytest.approx(0.2, rel=1e-6)


def test_gradient_of_rounding_alone_is_judged_on_the_largest() -> None:
    expected = {"a": torch.tensor([1.0]), "k.bias": torch.tensor([1e-9])}
    result = {"a": torch.tensor([1.0]), "k.bias": torch.tensor([-1e-9])}
    assert max_relative_error(result, expected).error == pytest.approx(2e-6, rel=1e-3)


def test_nan_is_the_largest_error() -> None:
    expected = {"a": torch.tensor([1.0]), "b": torch.tensor([1.0])}
    worst = max_relative_error({"a": torch.tensor([math.nan]), "b": torch.tensor([9.0])}, expected)
    assert (worst.parameter, worst.error) == ("a", math.inf)


def test_missing_gradient_is_named() -> None:
    first = torch.ones(1)
    with pytest.raises(InputError, match="missing b; additional c"):
        max_relative_error({"a": first, "c": first}, {"a": first, "b": first})


def test_shape_is_compared() -> None:
    with pytest.raises(InputError, match=r"gradient of a has shape \(2,\), expected \(1,\)"):
        max_relative_error({"a": torch.ones(2)}, {"a": torch.ones(1)})


def test_unknown_device() -> None:
    with pytest.raises(InputError, match="device='tpu' is unknown; allowed: cpu, cuda"):
        probe("tpu")


def test_cpu_is_probed() -> None:
    report = probe("cpu")
    assert (report.kind, report.backend, report.shareable) == ("cpu", "gloo", True)
    assert report.count >= 1


EXPERTS_REFUSED: dict[str, tuple[Plan, dict[str, Any], str]] = {
    "bias": (
        replace(BASE, etp=3, dp_replicate=3),
        {"mlp_bias": True},
        "etp=3 does not divide hidden_size=32, the width of the last biases of experts, which are "
        "divided too; use an etp that divides it",
    ),
}


@pytest.mark.parametrize("name", EXPERTS_REFUSED)
def test_refused_with_experts(name: str) -> None:
    plan, changes, message = EXPERTS_REFUSED[name]
    model = build_transformer(replace(MIXTRAL, **changes))
    with pytest.raises(PlanError) as refused:
        check_experts(plan, model)
    assert str(refused.value) == message
    check_experts(plan, build_transformer(GPT))


def test_experts_are_shared_by_neighbours_inside_a_stage() -> None:
    plan = Plan(pp=2, dp_shard=4, tp=2, ep=2, etp=2, zero_stage=1, sequence_parallel=True)
    ranks = ranks_by_share(plan)
    assert ranks.shape == (2, 1, 2, 2, 2)
    assert ranks[1].flatten().tolist() == list(range(8, 16))
    assert ranks[0, 0, 1].tolist() == [[4, 5], [6, 7]]
    other = replace(plan, rank_order=("pp", "tp", "dp_replicate", "dp_shard", "cp"))
    assert torch.equal(ranks_by_share(other), ranks)
    assert ranks_by_share(replace(plan, zero_stage=0)).shape == (2, 2, 1, 2, 2)
