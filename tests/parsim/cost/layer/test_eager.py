"""Kernels of plain PyTorch, one for each operation, against counts by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parsim.cost.layer.eager import moved_values
from parsim.cost.software import software
from parsim.model.graph.operation import moving
from parsim.model.operators import Elementwise
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer

HALF = 2.0
"""Bytes of an activation."""
TO_WIDE, WIDE, TO_HALF = 2 + 4, 4 + 4, 4 + 2
"""Bytes of a cast to fp32, of a kernel that reads and writes fp32, of a cast back."""


def operator(model: str, name: str) -> Elementwise:
    """An operator of a model's first layer."""
    layer = build_transformer(model_spec(model)).kinds[0]
    (op,) = (op for op in layer.operators if getattr(op, "name", "") == name)
    assert isinstance(op, Elementwise)
    return op


def moved(model: str, name: str) -> tuple[float, float]:
    return moved_values(software("deepspeed-huggingface"), operator(model, name), HALF)


def test_rms_norm_in_fp32() -> None:
    """LlamaRMSNorm: to fp32, square, mean, scaled, to 16 bit, weighted; q, k and v sum gradients.

    Backward the weight's product (2 read and 1 written for either factor, 1 to sum), the cast, both
    factors of the scaling (2 kernels and 2 sums), mean and square (3 kernels), their sum, the cast.
    """
    forward = TO_WIDE + WIDE + 4 + WIDE + TO_HALF + 4
    weight = 4 + 6 + 2
    scaling, square = WIDE + 12 + 4, 3 * WIDE
    backward = weight + TO_WIDE + scaling + square + 12 + TO_HALF
    inputs = (2 * 6 + 6) / 2  # two norms: three products read the first, two the second
    assert moved("llama3-8b", "attention_norm") == (forward, backward + inputs)


def test_activations_and_rotations() -> None:
    """SiLU and product 2 + 3; half-turns of queries and keys 2 + 3 + 2 + 3; GELU by tanh 18."""
    assert moved("llama3-8b", "swiglu") == (10.0, 18.0)
    assert moved("llama3-8b", "rope") == (20.0, 30.0)
    assert moved("gpt2", "gelu") == (36.0, 56.0)


def test_a_layer_norm_is_one_kernel_and_dropout_one_of_its_own() -> None:
    assert moved("gpt2", "mlp_norm") == (6.0, 14.0)
    dropped = replace(operator("gpt2", "mlp_residual"), mask=1)
    stack = software("deepspeed-huggingface")
    assert moved_values(stack, dropped, HALF) == (6 + 5, 6 + 5)
    assert moved_values(stack, replace(dropped, mask=0), HALF) == (6, 6)


@pytest.mark.parametrize("stack", ["generic", "mpt-fsdp-2023", "megatron-2021"])
def test_what_is_not_counted_moves_its_passes_times_the_traffic(stack: str) -> None:
    op, known = operator("gpt2", "mlp_residual"), software(stack)
    forward, backward = moved_values(known, op, HALF)
    assert forward == (op.forward * HALF + op.mask) * known.traffic
    assert backward == (op.backward * HALF + op.mask) * known.traffic


def test_mxnet_adds_and_rectifies_inside_the_normalisation_in_16_bit() -> None:
    """ReLU costs nothing, an addition one read and one gradient written; in fp32 ReLU is whole."""
    stack = software("mxnet")
    relu, add, norm = (
        moving(name, 1, *values)
        for name, *values in (("relu", 2, 3), ("add", 3, 0), ("norm", 3, 5))
    )
    assert moved_values(stack, relu, 2.0, "fp16") == (0.0, 0.0)
    assert moved_values(stack, add, 2.0, "fp16") == (2.0, 2.0)
    assert moved_values(stack, relu, 4.0, "fp32") == (8.0, 12.0)
    assert moved_values(stack, add, 4.0, "fp32") == (4.0, 0.0)
    assert moved_values(stack, norm, 2.0, "fp16") == (6.0, 10.0)


def test_fp32_norms_make_a_llama_move_more_than_its_passes_do() -> None:
    """All of a layer: 1.5 times what eager kernels of norms alike in all stacks would move."""
    llama = build_transformer(model_spec("llama2-7b")).kinds[0]
    parts = [op for op in llama.operators if isinstance(op, Elementwise)]

    def layer(stack: str) -> float:
        known = software(stack)
        return sum(op.width * sum(moved_values(known, op, HALF)) for op in parts)

    assert layer("deepspeed-huggingface") / layer("mpt-fsdp-2023") == pytest.approx(1.53, abs=0.03)
