"""Updates of weights of which several versions live at once."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch

from executor.pipeline.gradient_sums import GradientSums
from executor.run.stage_tasks.descent import Descent
from executor.training.update_rule import OptimizerConfig, Rate

STEPS = 100


def config(name: str) -> OptimizerConfig:
    return OptimizerConfig(name=name, rate=Rate(peak=1e-3), weight_decay=0.0)


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_sixteen_bit_weights_follow_fp32_masters(name: str) -> None:
    """A step is less than bf16 can tell apart at 1; a hundred of them are not."""
    first = torch.ones(4, dtype=torch.bfloat16)
    descent, wide = Descent([first], config(name)), torch.nn.Parameter(torch.ones(4))
    alone = Descent([wide.data], config(name))
    weights = first
    for _ in range(STEPS):
        weights = weights.clone()  # the version before stays as it was
        descent([weights], [torch.ones(4, dtype=torch.bfloat16)])
        alone([wide.data], [torch.ones(4)])
    assert torch.equal(first, torch.ones(4, dtype=torch.bfloat16))
    assert float(wide.detach()[0]) == pytest.approx(0.9, abs=1e-3)
    assert torch.equal(weights, wide.detach().to(torch.bfloat16))


def test_fp32_weights_are_updated_in_their_own_place() -> None:
    weights = [torch.ones(4)]
    address = weights[0].data_ptr()
    descent = Descent(weights, config("sgd"))
    descent(weights, [torch.ones(4)])
    assert descent.values[0].data_ptr() == address
    assert float(weights[0][0]) == pytest.approx(0.999)


def test_gradients_of_sixteen_bit_weights_add_up_in_fp32() -> None:
    """256 + 1 is 256 in bf16; backwards leave nothing in 16 bit behind."""
    weight = torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    sums = GradientSums([weight], torch.float32)
    for factor in (256.0, 1.0, 1.0):
        (weight * factor).sum().backward()
        assert weight.grad is None
    (total,) = sums.take()
    assert total.dtype == torch.float32
    assert total.tolist() == [258.0, 258.0]
    assert sums.take() == []
    narrow = GradientSums([torch.nn.Parameter(torch.ones(2))], torch.float32)
    assert narrow.take() == []
