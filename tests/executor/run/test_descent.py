"""Updates of weights of which several versions live at once."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch

from executor.pipeline.gradient_sums import GradientSums
from executor.pipeline.stage_groups import StageOrder
from executor.run.stage_tasks.descent import Descent
from executor.training.update_rule import OptimizerConfig, Rate
from parsim.schedule.versions import Versions

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


def test_the_rate_is_that_of_the_step_however_many_updates_it_has() -> None:
    """Every micro-batch is an update in PipeDream, of two replicas every other one."""
    versions = Versions(rule="pipedream", pp=2, counts=(1, 2))
    rates = [1e-3, 0.55e-3, 1e-4]  # a cosine over three steps
    for stage, each in ((0, 4), (1, 2)):
        updates = StageOrder.of(versions).updates(stage, 4)
        rate = Rate(peak=1e-3, decay="cosine", steps=3)
        settings = OptimizerConfig(name="sgd", rate=rate, weight_decay=0.0)
        weight = torch.zeros(1)
        descent, moves = Descent([weight], settings, updates), []
        for _ in range(3 * each):
            before = float(weight)
            descent([weight], [torch.ones(1)])
            moves.append(before - float(weight))
        assert moves == pytest.approx([rate for rate in rates for _ in range(each)], rel=1e-3)


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
