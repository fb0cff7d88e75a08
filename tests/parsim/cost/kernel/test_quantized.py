"""One layer with 8-bit products, counted by hand, and what must hold of any."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.kernel.kernels import gemm_time, memory_time
from parsim.cost.kernel.quantized import cast_bytes, gathered_size, held_size, recipe_of
from parsim.cost.layer.layers import LayerCoster
from parsim.cost.layer.operator_parts import Exchange, Kernel, PassPart
from parsim.cost.software import software, with_switches
from parsim.model.operators import Attention
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import Plan, PlanTable
from parsim.plan.precision import PRECISIONS, precision
from parsim.sim import simulate

# Llama 3 8B at 2048 tokens: h 4096, kv 1024, f 14336; (inputs, outputs) of a layer's products
SHAPES = ((4096, 6144), (4096, 4096), (4096, 28672), (14336, 4096))
TOKENS = 2048
QUANTIZED = [name for name, used in PRECISIONS.items() if used.quantization is not None]


def make_job(stack: str = "nemo", system: str = "dgx-h100") -> Job:
    spec = replace(model_spec("llama3-8b"), num_layers=4, seq_len=TOKENS)
    return Job(
        model=build_transformer(spec),
        cluster=Cluster(system=load_catalog().system(system), num_nodes=1),
        software=software(stack),
    )


def coster(job: Job, name: str, **changes: object) -> LayerCoster:
    plan = replace(Plan(dp_replicate=8, precision=name), **changes)  # type: ignore[arg-type]
    return LayerCoster(job, PlanTable.of([plan]))


def scaled(job: Job, share: float) -> Job:
    """The job on a device whose 8-bit peak is a share of what it was."""
    peaks = {**job.device.peak_flops, "fp8": share * job.device.peak("fp8")}
    system = replace(job.system, device=replace(job.device, peak_flops=peaks))
    return replace(job, cluster=replace(job.cluster, system=system))


@pytest.mark.parametrize(
    ("stack", "moved"),
    [("nemo", 1.0 * 8_192 + 4.0 * 18_432), ("megatron-bridge", 6.0 * 26_624)],
)
def test_a_layer_s_forward_is_its_products_in_8_bit_and_the_casts_before_them(
    stack: str, moved: float
) -> None:
    """Inputs: 4096 and 4096 a token from norms, 4096 and 14336 from others.

    Scales known beforehand: norms write 8 bit, 1 byte less, and a kernel turns that (2); others
    are read (2) and written either way (1, 1). Current ones: a pass (2) before each such cast.
    """
    job = make_job(stack)
    device = job.device
    layer = job.model.blocks[0]
    eight = coster(job, "fp8").cost(layer).forward.kernels[0]
    sixteen = coster(job, "bf16").cost(layer).forward.kernels[0]
    # operands of a byte each, a result of 2: one byte a value more than gemm_time's three matrices
    products = sum(
        float(gemm_time(device, "fp8", m=TOKENS, n=n, k=k, value=1, extra_bytes=TOKENS * n))
        for k, n in SHAPES
    )
    before = sum(float(gemm_time(device, "bf16", m=TOKENS, n=n, k=k, value=2)) for k, n in SHAPES)
    casts = float(memory_time(device, TOKENS * moved, 4))
    assert eight - sixteen == pytest.approx(products + casts - before, rel=1e-9)


@pytest.mark.parametrize(("stack", "moved"), [("nemo", 4.0), ("megatron-bridge", 6.0)])
def test_a_layer_s_backward_casts_the_gradients_of_its_outputs(stack: str, moved: float) -> None:
    job = make_job(stack)
    device = job.device
    eight = coster(job, "fp8").cost(job.model.blocks[0]).backward.kernels[0]
    sixteen = coster(job, "bf16").cost(job.model.blocks[0]).backward.kernels[0]

    def both(name: str, value: int, wider: int) -> float:
        """Input gradient (m, k, n) and weight gradient (k, n, m), which adds 8 bytes a value."""
        return sum(
            float(
                gemm_time(
                    device, name, m=TOKENS, n=k, k=n, value=value, extra_bytes=wider * TOKENS * k
                )
            )
            + float(
                gemm_time(
                    device, name, m=k, n=n, k=TOKENS, value=value, extra_bytes=(8.0 + wider) * k * n
                )
            )
            for k, n in SHAPES
        )

    # outputs: 6144 + 4096 + 28672 + 4096 = 43,008 a token
    casts = float(memory_time(device, moved * TOKENS * 43_008, 4))
    expected = both("fp8", 1, 1) + casts - both("bf16", 2, 0)
    assert eight - sixteen == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", ["fp8", "fp8_rowwise", "fp8_amp"])
def test_head_and_embedding_stay_in_16_bit(name: str) -> None:
    job = make_job()
    eight, sixteen = coster(job, name), coster(job, "bf16")
    for layer in job.model.ends:
        cost, other = eight.cost(layer), sixteen.cost(layer)
        assert cost.forward.kernels == other.forward.kernels
        assert cost.backward.kernels == other.backward.kernels


def test_a_stack_may_compute_the_logits_in_8_bit_too() -> None:
    job = make_job()
    switched = replace(job, software=with_switches(job.software, {"quantized_logits": True}))
    embedding, head = job.model.ends[0], job.model.ends[-1]
    plain, both = coster(job, "fp8"), coster(switched, "fp8")
    assert both.cost(head).products.kernels < 0.7 * plain.cost(head).products.kernels
    assert both.cost(head).backward.kernels < plain.cost(head).backward.kernels
    assert both.cost(embedding).forward.kernels == plain.cost(embedding).forward.kernels
    sixteen = coster(switched, "bf16").cost(head).forward.kernels
    assert sixteen == coster(job, "bf16").cost(head).forward.kernels


def attention_kernels(job: Job, name: str, op: Attention) -> list[Kernel]:
    """What the attention of a layer runs, four sequences at once."""
    operators = coster(job, name, microbatch_size=4).operators
    groups = operators.of(op, precision(name).quantization)
    return [kernel for group in groups if not isinstance(group, Exchange) for kernel in group]


def attention_seconds(job: Job, name: str) -> list[float]:
    """Core and casts forward, core and casts backward, of a layer's attention."""
    op = next(op for op in job.model.blocks[0].operators if isinstance(op, Attention))
    kernels = attention_kernels(job, name, op)
    return [
        sum(k.total.item() for k in kernels if k.part is part and (k.kind == "cast") is cast)
        for part in (PassPart.CORE, PassPart.BACKWARD)
        for cast in (False, True)
    ]


def test_a_stack_may_run_attention_in_8_bit_too() -> None:
    """By its device's rates, with casts of queries, keys, values and of the output's gradient."""
    job = make_job(system="gb200-nvl72")
    switched = replace(job, software=with_switches(job.software, {"quantized_attention": True}))
    plain, narrow = (attention_seconds(each, "mxfp8") for each in (job, switched))
    assert plain[1] == plain[3] == 0.0
    assert narrow[0] / plain[0] == pytest.approx(1 / 1.21, rel=0.02)
    assert narrow[2] / plain[2] == pytest.approx(1 / 0.95, rel=0.02)
    tokens = 4 * TOKENS
    assert narrow[1] == pytest.approx(float(memory_time(job.device, 4.0625 * tokens * 6144, 3)))
    assert narrow[3] == pytest.approx(float(memory_time(job.device, 4.0625 * tokens * 4096, 1)))
    assert attention_seconds(switched, "bf16") == attention_seconds(job, "bf16")


def test_a_window_spares_a_backward_in_8_bit_nothing() -> None:
    """cuDNN 9.22: 1.73 ms in fp8 and 0.47 in bf16 for a window of 128 under 4,096 keys."""
    job = make_job(system="gb200-nvl72")
    spec = replace(model_spec("gpt-oss-20b"), num_layers=2)
    job = replace(job, model=build_transformer(spec))
    switched = replace(job, software=with_switches(job.software, {"quantized_attention": True}))
    ops = [op for layer in job.model.blocks for op in layer.operators if isinstance(op, Attention)]
    windowed = next(op for op in ops if op.window is not None)
    kernels = attention_kernels(switched, "mxfp8", windowed)
    flops = {kernel.kind: kernel.shape[0] for kernel in kernels}
    spared = windowed.seen / windowed.unwindowed
    assert spared < 0.2
    whole = 2.5 * flops["attention_forward"] / spared
    assert np.allclose(flops["attention_backward"], whole)


def test_what_8_bit_products_need_is_gathered_in_8_bit() -> None:
    """Sequence parallelism: all-gathers of half the bytes, reduce-scatters of the same."""
    job = make_job()
    job = replace(job, software=replace(job.software, tp_overlap=False))
    layer = job.model.blocks[0]
    shapes = {"tp": 8, "sequence_parallel": True, "dp_replicate": 1}
    eight = coster(job, "fp8", **shapes).cost(layer).forward.exposed
    sixteen = coster(job, "bf16", **shapes).cost(layer).forward.exposed
    borders = coster(job, "bf16", **shapes).operators.borders
    size = TOKENS * 4096.0
    wide, narrow = (
        borders.message("all_gather", bytes_each * np.array([size])).seconds(job.system)
        for bytes_each in (2.0, 1.0)
    )
    assert sixteen - eight == pytest.approx(2.0 * (wide - narrow), rel=1e-9)


def test_products_of_4_bit_are_not_cut_into_chunks_beside_their_collectives() -> None:
    """User buffers take 16 and 8 bit: all of what 4-bit products need shows, overlap or not."""
    job = make_job(system="gb200-nvl72", stack="nemo")
    waits = replace(job, software=replace(job.software, tp_overlap=False))
    shapes = {"tp": 4, "sequence_parallel": True, "dp_replicate": 1}

    def shown(of: Job, name: str) -> float:
        return float(coster(of, name, **shapes).cost(of.model.blocks[0]).forward.exposed[0])

    assert shown(job, "nvfp4") == shown(waits, "nvfp4") > 0.0
    for name in ("bf16", "mxfp8"):
        assert shown(job, name) < shown(waits, name)


def passes(system: str, name: str, *, sequence_parallel: bool) -> tuple[float, float]:
    """Seconds of a layer's kernels forward and backward, with tp 8."""
    job = make_job(system=system)
    shapes = {"tp": 8, "sequence_parallel": sequence_parallel, "dp_replicate": 1}
    cost = coster(job, name, **shapes).cost(job.model.blocks[0])
    return float(cost.forward.kernels[0]), float(cost.backward.kernels[0])


BLOCKS = (4.0625, 4.0625, 0.0)
"""MXFP8: 2 bytes read and 33/32 written either way, by whoever casts."""


@pytest.mark.parametrize(
    ("system", "name", "normed", "other"),
    [
        ("dgx-h100", "fp8", (1.0, 0.0, 2.0), (4.0, 3.0, 2.0)),
        ("dgx-b200", "fp8", (0.0, 0.0, 0.0), (3.0, 3.0, 0.0)),
        ("dgx-b200", "mxfp8", BLOCKS, BLOCKS),
    ],
)
def test_ranks_cast_their_own_tokens_before_they_gather_the_others(
    system: str, name: str, normed: tuple[float, ...], other: tuple[float, ...]
) -> None:
    """Forward the inputs of two column-split matrices, backward the gradients of two outputs.

    Each is 2048 x 4096 values. Bytes of one: where a rank casts all of them, where it casts an
    eighth, and what Hopper turns of all that came.
    """
    device = make_job(system=system).device
    values = 2 * TOKENS * 4096.0
    eight, sixteen = (
        [
            alone - shared
            for alone, shared in zip(
                passes(system, each, sequence_parallel=False),
                passes(system, each, sequence_parallel=True),
                strict=True,
            )
        ]
        for each in (name, "bf16")
    )
    for less, otherwise, (whole, part, turned) in zip(eight, sixteen, (normed, other), strict=True):
        spared = float(memory_time(device, (whole - part / 8 - turned) * values, 0))
        assert less - otherwise == pytest.approx(spared, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize(
    ("system", "scales", "trained", "moved"),
    [
        ("dgx-h100", "delayed", True, 4.0),
        ("dgx-h100", "delayed", False, 3.0),
        ("dgx-h100", "current", True, 6.0),
        ("dgx-b200", "delayed", True, 3.0),
        ("dgx-b200", "current", True, 5.0),
    ],
)
def test_a_frozen_weight_and_a_device_that_takes_either_way_need_one_orientation(
    system: str, scales: str, trained: bool, moved: float
) -> None:
    job = make_job(system=system)
    job = replace(job, software=with_switches(job.software, {"fp8_scales": scales}))
    how = recipe_of(job, precision("fp8"))
    assert how is not None
    assert cast_bytes(job, how, trained=trained) == moved


def test_only_scales_that_are_known_let_a_norm_write_8_bit() -> None:
    for name in ("mxfp8", "nvfp4", "mxfp4", "fp8_rowwise"):
        how = precision(name).quantization
        assert how is not None
        for job in (make_job(), make_job(system="dgx-b200")):
            assert cast_bytes(job, how, normed=True) == cast_bytes(job, how)
            assert cast_bytes(job, how, trained=False) == how.moved < cast_bytes(job, how)


def test_stacks_say_which_scales_8_bit_products_have() -> None:
    used = precision("fp8")
    assert recipe_of(make_job("nemo"), used) == used.quantization
    for stack in ("megatron-bridge", "megatron-bridge-26.06", "torchtitan"):
        how = recipe_of(make_job(stack), used)
        assert how is not None
        assert (how.moved, how.known) == (5.0, False)
        assert recipe_of(make_job(stack), precision("mxfp8")) == precision("mxfp8").quantization
        assert recipe_of(make_job(stack), precision("bf16")) is None


def test_rows_with_their_own_scales_are_gathered_in_16_bit_and_cast_by_every_rank() -> None:
    job = make_job("torchtitan")
    layer = job.model.blocks[0]
    shapes = {"tp": 8, "sequence_parallel": True, "dp_replicate": 1}
    own_scales, sixteen, alone = (
        coster(job, name, **{**shapes, "sequence_parallel": split}).cost(layer).forward
        for name, split in (("fp8_rowwise", True), ("bf16", True), ("fp8_rowwise", False))
    )
    assert own_scales.exposed == pytest.approx(sixteen.exposed, rel=1e-9)
    other = coster(job, "bf16", **{**shapes, "sequence_parallel": False}).cost(layer).forward
    assert own_scales.kernels - sixteen.kernels == pytest.approx(alone.kernels - other.kernels)


def test_gathered_weights_are_cast_in_each_pass_unless_they_come_in_8_bit() -> None:
    """A layer's 218,103,808 weights take 4 bytes each in either direction: torchtitan gathers
    16 bit, NeMo 8."""
    job = make_job("torchtitan")
    device, layer = job.device, job.model.blocks[0]
    sharded = coster(job, "fp8", zero_stage=3, dp_shard=8, dp_replicate=1).cost(layer)
    whole = coster(job, "fp8").cost(layer)
    cast = float(memory_time(device, 4.0 * 218_103_808, 0))
    for passed, other in ((sharded.forward, whole.forward), (sharded.backward, whole.backward)):
        assert passed.kernels - other.kernels == pytest.approx(cast, rel=1e-9)
    assert gathered_size(job, precision("fp8")) == 2.0
    nemo = replace(job, software=software("nemo"))
    share = 4 * 218_103_808 / job.model.parameters
    assert gathered_size(nemo, precision("fp8")) == pytest.approx(2.0 - share)
    assert gathered_size(nemo, precision("bf16")) == 2.0


def test_weights_have_no_transpose_where_products_take_either_orientation() -> None:
    """B200 holds a byte of each of 4 layers' 872,415,232 weights, and 16 bit of all else."""
    job, hopper = make_job(system="dgx-b200"), make_job()
    weights = 4 * 218_103_808
    share = weights / job.model.parameters
    assert held_size(job, precision("fp8")) == pytest.approx(2.0 - share)
    assert held_size(job, precision("mxfp8")) == held_size(job, precision("bf16")) == 2.0
    assert held_size(hopper, precision("fp8")) == 2.0
    wide = replace(job, software=software("torchtitan"))
    assert held_size(wide, precision("fp8")) == 2.0
    plan = Plan(dp_replicate=8)
    sixteen, eight = (
        simulate(job, replace(plan, precision=name)).memory["parameters"]
        for name in ("bf16", "fp8")
    )
    assert sixteen - eight == pytest.approx(weights)


@settings(max_examples=30)
@given(
    name=st.sampled_from(["fp8", "fp8_rowwise", "fp8_amp"]),
    share=st.floats(min_value=1, max_value=3),
)
def test_a_higher_8_bit_peak_is_never_slower(name: str, share: float) -> None:
    job, plan = make_job(), Plan(tp=2, dp_replicate=4, precision=name)
    faster = simulate(scaled(job, share), plan).step_time
    assert faster <= simulate(job, plan).step_time * (1 + 1e-12)


@pytest.mark.parametrize("name", QUANTIZED)
def test_inputs_of_products_are_kept_as_the_recipe_keeps_them(name: str) -> None:
    """26,624 values a token and layer, of which 16-bit training keeps 2 bytes each.

    The 4,096 of attention's output stay in 16 bit too: a fused kernel's backward reads them.
    """
    system, devices = ("mi355x-node", 8) if name == "mxfp4" else ("gb200-nvl72", 72)
    job, plan = make_job(system=system), Plan(dp_replicate=devices)
    kept = precision(name).quantization
    assert kept is not None
    before = simulate(job, replace(plan, precision="bf16")).memory["activations"]
    after = simulate(job, replace(plan, precision=name)).memory["activations"]
    again = 2 * 4096 if kept.kept != 2 else 0
    expected = (2 - kept.kept) * 26_624 - again
    assert before - after == pytest.approx(expected * TOKENS * 4)
