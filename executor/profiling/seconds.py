"""Seconds of operations at one batch size or two: a part that each call takes, and one a sample.

Backward of an operation is what autograd takes for it, without starting: a pass starts once for
all operations, and what that takes is subtracted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from executor.profiling.batch import Batch
from executor.profiling.stored import memory_of

REPEATS = 3
"""So often an operation is timed at least; the fastest counts."""
MOST_REPEATS, ENOUGH_S = 40, 0.02
"""Short operations are timed more often, until this many times or seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Seconds of a call on n samples: `call` + n `sample`."""

    call: float
    sample: float


def line(asked: tuple[int, float], other: tuple[int, float] | None = None) -> Line:
    """The line through samples and seconds of one or two batches; through 0 where there is one.

    Where seconds grow faster than the batch, caches overflow: the line goes through 0 too.
    """
    batch, seconds = asked
    through_zero = Line(call=0.0, sample=seconds / batch)
    if other is None:
        return through_zero
    slope = (other[1] - seconds) / (other[0] - batch)
    if slope <= 0.0:
        return Line(call=seconds, sample=0.0)
    call = seconds - slope * batch
    return Line(call=call, sample=slope) if call >= 0.0 else through_zero


class Timer(fx.Interpreter):  # type: ignore[misc]  # torch has no types here
    """Runs an exported graph once, and times some of its nodes."""

    def __init__(self, module: fx.GraphModule, names: Collection[str]) -> None:
        super().__init__(module)
        self.names = names
        self.fixed = {memory_of(buffer) for buffer in module.buffers()}
        """Memory of running statistics and masks, of which there are no gradients."""
        self.seconds: dict[str, tuple[float, float]] = {}

    def run_node(self, n: fx.Node) -> Any:  # noqa: ANN401 - whatever the operation gives
        """Run one operation, and time it where it is asked for."""
        if n.name in self.names:
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            with torch.enable_grad():
                self.seconds[n.name] = timed(n.target, args, kwargs, self.fixed)
        return super().run_node(n)


def seconds_of(
    module: fx.GraphModule, names: Collection[str], batch: Batch
) -> dict[str, tuple[float, float]]:
    """Seconds forward and backward of some nodes of a graph on a batch."""
    if not names:
        return {}
    timer = Timer(module, names)
    with torch.no_grad():
        timer.run(*batch.tensors, enable_io_processing=False)
    return timer.seconds


def timed(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    fixed: Collection[int] = (),
) -> tuple[float, float]:
    """Seconds forward and backward; 0 backward where nothing has a gradient.

    `fixed` is the memory of tensors that have none.
    """
    leaves: list[Tensor] = []
    given = [_leaf(arg, leaves, fixed) for arg in args]
    forward, result = fastest(lambda: function(*given, **kwargs))
    if not leaves or not _asking(result):
        return forward, 0.0

    def forward_and_back() -> object:
        return _gradients(_asking(function(*given, **kwargs)), leaves)

    both, _ = fastest(forward_and_back)
    entering = _asking(given)
    starting, _ = fastest(lambda: _gradients(entering, leaves))
    return forward, max(both - forward - starting, 0.0)


def _gradients(outputs: list[Tensor], leaves: list[Tensor]) -> object:
    ones = [torch.ones_like(output) for output in outputs]
    return torch.autograd.grad(outputs, leaves, ones, allow_unused=True, retain_graph=True)


def fastest(function: Callable[[], Any]) -> tuple[float, Any]:
    """The least seconds of several calls, and what the last one returned."""
    best, result, began = float("inf"), None, time.perf_counter()
    for count in range(MOST_REPEATS + 1):  # the first one warms up
        start = time.perf_counter()
        result = function()
        now = time.perf_counter()
        best = min(best, now - start)
        if count >= REPEATS and now - began > ENOUGH_S:
            break
    return best, result


def _leaf(value: object, leaves: list[Tensor], fixed: Collection[int]) -> object:
    if isinstance(value, list | tuple):
        return type(value)(_leaf(part, leaves, fixed) for part in value)
    if not isinstance(value, Tensor):
        return value
    copy = value.detach().clone()
    if copy.is_floating_point() and memory_of(value) not in fixed:
        leaves.append(copy.requires_grad_())
        return copy * 1.0  # what a network computes may be overwritten, a leaf may not
    return copy


def _asking(value: object) -> list[Tensor]:
    """The tensors that have a gradient."""
    return [tensor for tensor in tensors(value) if tensor.requires_grad]


def tensors(value: object) -> list[Tensor]:
    """All tensors in arguments or results, which may be nested."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [tensor for part in value for tensor in tensors(part)]
    return []
