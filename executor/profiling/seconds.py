"""Seconds of one function of tensors on this machine, forward and backward."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

REPEATS = 3
"""So often an operation is timed; the fastest counts."""


def timed(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[float, float]:
    """Seconds forward and backward; 0 backward where nothing has a gradient."""
    leaves: list[Tensor] = []
    given = [_leaf(arg, leaves) for arg in args]
    forward, result = _fastest(lambda: function(*given, **kwargs))
    outputs = [t for t in _tensors(result) if t.requires_grad]
    if not leaves or not outputs:
        return forward, 0.0
    ones = [torch.ones_like(t) for t in outputs]

    def back() -> object:
        again = [t for t in _tensors(function(*given, **kwargs)) if t.requires_grad]
        return torch.autograd.grad(again, leaves, ones, allow_unused=True, retain_graph=True)

    both, _ = _fastest(back)
    return forward, max(both - forward, 0.0)


def _fastest(function: Callable[[], Any]) -> tuple[float, Any]:
    best, result = float("inf"), None
    for _ in range(REPEATS + 1):  # the first one warms up
        began = time.perf_counter()
        result = function()
        best = min(best, time.perf_counter() - began)
    return best, result


def _leaf(value: object, leaves: list[Tensor]) -> object:
    if isinstance(value, list | tuple):
        return type(value)(_leaf(part, leaves) for part in value)
    if not isinstance(value, Tensor):
        return value
    copy = value.detach().clone()
    if copy.is_floating_point():
        leaves.append(copy.requires_grad_())
        return copy * 1.0  # what a network computes may be overwritten, a leaf may not
    return copy


def _tensors(value: object) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [tensor for part in value for tensor in _tensors(part)]
    return []
