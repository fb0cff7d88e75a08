"""Software stacks: each field stated with its reason, inherited, and within its range."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from parsim.cluster.reader import load_catalog
from parsim.cost.software import (
    GENERIC,
    Software,
    changed_switches,
    software,
    software_catalog,
    with_switches,
)
from parsim.errors import CatalogError, alternatives

STATED = {f.name for f in fields(Software)} - {"id", "description", "reasons"}
SHARES = ("overlap", "tp_overlap_backward")
AMOUNTS = (
    "traffic",
    "scores_traffic",
    "launch_cost",
    "host_spread",
    "microbatch_overhead",
    "loss_bytes",
    "loss_kept",
    "optimizer_bytes",
    "optimizer_fixed",
    "tensor_update",
    "input_copy_rate",
    "cudnn",
    "persistent_norms",
    "convolution_workspace",
    "norm_sums",
    "norm_bytes",
    "clip_bytes",
    "scaling_bytes",
    "scaling_sums",
    "workspace",
    "unused_kernels",
)
FLAGS = (
    "fused_attention",
    "fused_gradient_accumulation",
    "overlap_grad_reduce",
    "overlap_param_gather",
    "overlap_p2p",
    "scatter_p2p",
    "tp_overlap",
    "tp_rings",
)


@pytest.fixture(params=sorted(software_catalog()))
def stack(request: pytest.FixtureRequest) -> Software:
    return software(request.param)


def test_every_field_has_a_reason(stack: Software) -> None:
    assert set(stack.reasons) == STATED
    assert all(reason.strip() for reason in stack.reasons.values())
    assert stack.description


def test_shares_and_amounts(stack: Software) -> None:
    assert all(0.0 <= getattr(stack, name) <= 1.0 for name in SHARES)
    assert all(0.0 <= getattr(stack, name) < 1e12 for name in AMOUNTS)
    assert min(stack.traffic, stack.scores_traffic) >= 1.0
    assert stack.loss_kept <= stack.loss_bytes


def test_switches(stack: Software) -> None:
    assert {type(getattr(stack, name)) for name in FLAGS} == {bool}
    assert {stack.gradient_precision, stack.reduce_precision} <= {"fp32", "same"}
    assert stack.fp16_sums in ("", "fp32", "same")


@pytest.mark.parametrize("device", ["v100-sxm-32gb", "a100-sxm-80gb", "h100-sxm-80gb", "cpu"])
def test_attention_has_a_speed_on_every_device(stack: Software, device: str) -> None:
    forward, backward = stack.attention_speed(device)
    assert 0.0 < forward <= 2.0
    assert 0.0 < backward <= 2.0


def test_an_h800_computes_attention_as_an_h100_does(stack: Software) -> None:
    """They differ in links alone, whatever their names begin with."""
    assert stack.attention_speed("h800-sxm") == stack.attention_speed("h100-sxm-80gb")
    assert stack.expert_hidden("h800-sxm") == stack.expert_hidden("h100-sxm-80gb")


def test_the_longest_known_start_of_a_device_names_its_attention() -> None:
    speeds = {"default": (1.0, 0.9), "h100": (0.5, 0.4), "h100-pcie": (0.3, 0.2)}
    stack = replace(software(GENERIC), attention_factor=speeds)
    assert stack.attention_speed("a100-sxm-80gb") == (1.0, 0.9)
    assert stack.attention_speed("h100-sxm-80gb") == (0.5, 0.4)
    assert stack.attention_speed("h100-pcie-80gb") == (0.3, 0.2)


def test_replicas_differ_by_what_they_train_on() -> None:
    """Images lose more in fp16 under PyTorch's DistributedDataParallel, tokens do not."""
    stack = software("pytorch-ddp")
    spread = {
        (images, compute): stack.spread_of_replicas(compute, images=images)
        for images in (False, True)
        for compute in ("fp32", "fp16")
    }
    assert spread[True, "fp16"] > spread[True, "fp32"] > spread[False, "fp32"] > 0.0
    assert spread[False, "fp16"] == spread[False, "fp32"]
    plain = replace(stack, replica_spread={"default": 0.1, "fp16": 0.2})
    assert plain.spread_of_replicas("fp16", images=False) == 0.2
    assert plain.spread_of_replicas("fp16", images=True) == 0.2


@pytest.mark.parametrize(
    ("name", "precision", "sums"),
    [
        ("megatron-2021", "bf16", ("fp32", "fp32")),
        ("megatron-2021", "fp16", ("same", "same")),
        ("megatron-deepspeed-vtrain", "bf16", ("fp32", "same")),
        ("megatron-deepspeed-vtrain", "fp16", ("same", "same")),
        ("megatron-lm", "fp16", ("same", "same")),
        ("megatron-lm", "fp16_amp", ("fp32", "fp32")),
        (GENERIC, "fp16", ("fp32", "fp32")),
    ],
)
def test_what_gradients_are_summed_and_sent_in(
    name: str, precision: str, sums: tuple[str, str]
) -> None:
    usual = software(name).sums_of(precision)
    assert usual == dict(zip(("gradient_precision", "reduce_precision"), sums, strict=True))


def test_a_stack_starts_from_the_one_it_names() -> None:
    first, second = software("megatron-2021"), software("megatron-2022")
    same = {name for name in STATED if getattr(first, name) == getattr(second, name)}
    assert same < STATED
    assert {first.reasons[name] for name in same} >= {second.reasons["optimizer_bytes"]}
    assert second.reasons["tp_overlap_backward"] != first.reasons["tp_overlap_backward"]
    assert (second.id, second.description) != (first.id, first.description)


def test_what_the_published_stacks_are_known_for() -> None:
    megatron = software("megatron-2021")
    assert (megatron.fused_attention, megatron.scatter_p2p) == (False, True)
    assert (megatron.overlap_grad_reduce, megatron.overlap) == (False, 0.0)
    assert software("nemo").tp_overlap
    assert not software(GENERIC).tp_overlap
    assert software("torchtitan").fused_attention
    for name in ("megatron-bridge", "megatron-te-2025"):  # the gradient stands where logits were
        stack = software(name)
        assert (stack.loss_bytes, stack.loss_kept, stack.loss_saved) == (2 + 4 + 4, 2, 2)


def test_an_unknown_stack() -> None:
    with pytest.raises(CatalogError) as caught:
        software("megatron2021")
    assert str(caught.value) == (
        "software 'megatron2021' is unknown"
        + alternatives(
            "megatron2021", sorted(software_catalog()), listing="parsim catalog software"
        )
    )


def test_compiling_moves_less_and_back() -> None:
    eager, titan = software("executor-cuda"), software("torchtitan")
    compiled = with_switches(eager, {"compile": True})
    assert compiled.traffic == pytest.approx(eager.traffic / 1.8)
    assert changed_switches(compiled) == {"compile": True}
    assert with_switches(compiled, {"compile": False}).traffic == pytest.approx(eager.traffic)
    assert with_switches(eager, {"compile": False}) == eager
    slower = with_switches(titan, {"compile": False})
    assert slower.keeps_output
    assert slower.traffic == pytest.approx(1.4 * 1.8)
    with pytest.raises(
        CatalogError, match=r"software.compile=true: stack nemo has no such switch.*"
    ):
        with_switches(software("nemo"), {"compile": True})


def test_nothing_runs_beside_a_launch_that_blocks() -> None:
    usual = software("megatron-bridge")
    blocking = with_switches(usual, {"blocking_launches": True, "expert_overlap": 1.0})
    assert usual.tp_overlap
    assert (blocking.overlap, blocking.tp_overlap, blocking.overlap_p2p) == (0.0, False, False)
    assert blocking.expert_hidden("b200-sxm") == 0.0
    assert with_switches(usual, changed_switches(blocking)) == blocking
    assert with_switches(usual, {"blocking_launches": False}) == usual


def test_old_frameworks_load_kernels_that_nobody_uses() -> None:
    """1,687 MiB of an RTX 3090 under PyTorch 1.8.2; since 1.13 a kernel is loaded when launched."""
    device = load_catalog().device("a100-sxm-40gb")
    old, new = software("megatron-deepspeed-2022"), software("megatron-deepspeed-2023")
    assert new.context_memory(device) == device.context_memory
    assert old.context_memory(device) == pytest.approx(1687 * 2**20, rel=0.01)
    for stack in (old, new):
        assert stack.usable_memory(device) + stack.context_memory(device) == device.memory


def test_kernels_of_a_stack_without_torch_compile_are_counted_where_they_are_known() -> None:
    eager = with_switches(software("torchtune"), {"compile": False})
    assert tuple(eager.eager_values["rope"]) == (24.0, 50.0)
    assert dict(eager.eager_kept) == {"rms_norm": 2.0, "swiglu": 1.0}
    assert not with_switches(eager, {"compile": True}).eager_values
    assert not with_switches(software("torchtitan"), {"compile": False}).eager_values
