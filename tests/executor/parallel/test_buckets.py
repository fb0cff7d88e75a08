"""Flat buffers of gradients in one process: what a step leaves in them."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn

from executor.parallel.gradients.buckets import GradientBuckets
from executor.parallel.gradients.layout import Groups


def _buckets(parameters: dict[str, nn.Parameter]) -> GradientBuckets:
    return GradientBuckets(
        parameters,
        Groups(),
        bucket_bytes=1e6,
        dtype=torch.float32,
        wire=torch.float32,
        overlap=True,
    )


def _step(buckets: GradientBuckets, *microbatches: dict[nn.Parameter, float]) -> list[Tensor]:
    """A step whose micro-batches give parameters gradients of one value each."""
    buckets.forget()
    for number, values in enumerate(microbatches):
        buckets.last_backward = number == len(microbatches) - 1
        for parameter, value in values.items():
            (value * parameter).sum().backward()
    buckets.finish()
    return [gradient.clone() for _, _, gradient in buckets.whole()]


def test_a_step_keeps_nothing_of_the_last_one_and_sums_its_micro_batches() -> None:
    first, second = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(2))
    buckets = _buckets({"first": first, "second": second})
    after = _step(buckets, {first: 1.0, second: 2.0}, {first: 4.0, second: 8.0})
    assert [x.tolist() for x in after] == [[10.0] * 2, [5.0] * 3]  # last parameters come first
    after = _step(buckets, {first: 3.0}, {first: 4.0})
    assert [x.tolist() for x in after] == [[0.0] * 2, [7.0] * 3]
    after = _step(buckets, {second: 1.0})
    assert [x.tolist() for x in after] == [[1.0] * 2, [0.0] * 3]
