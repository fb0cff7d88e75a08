"""Outputs of stages are held against what the next stage expects; no processes needed."""

from __future__ import annotations

import pytest
import torch

from executor.runtime import TensorSpec, check_output
from parsim.errors import PlanError

EDGE = TensorSpec((2, 4, 16), torch.float32)


def test_promised_output_is_accepted() -> None:
    check_output(0, torch.zeros(2, 4, 16), EDGE)


@pytest.mark.parametrize(
    ("output", "wording"),
    [
        (torch.zeros(2, 4, 8), r"stage 3 returns \(2, 4, 8\) torch.float32, but edge 4 promises"),
        (
            torch.zeros(2, 4, 16, dtype=torch.bfloat16),
            r"torch.bfloat16, but edge 4 .*torch.float32",
        ),
        ((torch.zeros(2, 4, 16),), "stage 3 returns tuple; allowed: one tensor"),
    ],
)
def test_other_output_is_refused(output: object, wording: str) -> None:
    with pytest.raises(PlanError, match=wording):
        check_output(3, output, EDGE)


def test_examples_have_no_storage_and_only_numbers_take_gradients() -> None:
    example = EDGE.example(requires_grad=True)
    assert (example.device.type, tuple(example.shape)) == ("meta", EDGE.shape)
    assert example.requires_grad
    assert not TensorSpec((2,), torch.int64).example(requires_grad=True).requires_grad
