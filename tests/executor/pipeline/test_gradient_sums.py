"""Sums of gradients wider than the weights, and what they keep alive."""

from __future__ import annotations

import gc
import weakref

import pytest

pytest.importorskip("torch")

import torch

from executor.pipeline.gradient_sums import GradientSums


def test_gradients_of_16_bit_add_up_in_fp32() -> None:
    layer = torch.nn.Linear(3, 1, bias=False, dtype=torch.bfloat16)
    sums = GradientSums(list(layer.parameters()), torch.float32)
    for size in (256.0, 1.0):
        layer(torch.full((1, 3), size, dtype=torch.bfloat16)).sum().backward()
    (total,) = sums.take()
    assert total.dtype == torch.float32
    assert total.tolist() == [[257.0] * 3]  # 16 bits would have 256
    assert sums.take() == []


def test_weights_are_let_go_with_their_sums() -> None:
    layer = torch.nn.Linear(3, 1, dtype=torch.bfloat16)
    sums = GradientSums(list(layer.parameters()), torch.float32)
    layer(torch.ones((1, 3), dtype=torch.bfloat16)).sum().backward()
    weight = weakref.ref(layer.weight)
    del layer, sums
    gc.collect()
    assert weight() is None
