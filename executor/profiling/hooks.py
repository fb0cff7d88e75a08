"""The plain way: leaf modules in the order in which they run, each with its measured seconds."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from executor.profiling.batch import Batch
from executor.profiling.seconds import Line, line, tensors
from executor.profiling.stored import Stored
from parsim.errors import InputError
from parsim.model.graph.record import INPUT, Graph, Node
from parsim.model.graph.texts import Measured

STEPS = 4
"""So many steps are run, of which the first one warms up; the fastest of each module counts."""


def hooked(
    name: str, model: nn.Module, batches: tuple[Batch, Batch | None], device: str
) -> tuple[Graph, float]:
    """Time the leaf modules of some steps with one batch or two, and chain them.

    Joins, branches and what runs between modules are not seen: the chain has their modules one
    after another, and the time between them is nobody's. Its share of the forward comes second.

    Raises:
        InputError: the module fails, no leaf module runs, or others with the second batch.
    """
    batch, second = batches
    clock = _timed(name, model, batch)
    other = None if second is None else _timed(name, model, second)
    if other is not None and other.order != clock.order:
        raise InputError(f"{name}: other modules run with a batch of {other.batch}")
    nodes = tuple(clock.nodes(other))
    graph = Graph(name=name, input_shape=batch.shape, nodes=nodes, device=device)
    return graph, clock.between


def _timed(name: str, model: nn.Module, batch: Batch) -> _Clock:
    """The clock of some steps with one batch."""
    batch = batch.each(_asking)
    stored = Stored([*model.parameters(), *model.buffers()])
    clock = _Clock(batch.size, stored)
    handles = [handle for path, leaf in leaves(model) for handle in clock.watch(path, leaf)]
    try:
        with stored:
            batch.through(model)
        with warnings.catch_warnings():  # of a table, whose ids have no gradient
            warnings.filterwarnings("ignore", message="Full backward hook is firing")
            for step in range(STEPS):
                clock.begin(warm=step > 1)
                clock.sum_of(clock.whole(model, batch)).backward()
        clock.begin(warm=True)
    except Exception as reason:  # whatever the user's code raises
        raise InputError(f"{name} failed: {type(reason).__name__}: {reason}") from None
    finally:
        for handle in handles:
            handle.remove()
    if not clock.order:
        raise InputError(f"{name}: no module inside of it was called, so nothing can be timed")
    return clock


def _asking(tensor: Tensor) -> Tensor:
    """Values that have a gradient, so that backward hooks see the first modules too."""
    return tensor.detach().requires_grad_() if tensor.is_floating_point() else tensor


def leaves(model: nn.Module, path: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Modules that are timed, by their paths: those without others, and attention as a whole.

    `nn.MultiheadAttention` calls functions with its parts' weights, and not its parts.
    """
    for name, part in model.named_children():
        inside = f"{path}.{name}" if path else name
        if isinstance(part, nn.MultiheadAttention) or not list(part.children()):
            yield inside, part
        else:
            yield from leaves(part, inside)


class _Clock:
    """Seconds, outputs and parameters of leaf modules as they are called."""

    def __init__(self, batch: int, stored: Stored) -> None:
        self.batch, self.stored = batch, stored
        self.order: list[str] = []
        self.began: dict[str, float] = {}
        self.step: dict[tuple[str, int], float] = {}
        """Seconds of the step that runs, by module and way: 0 is forward, 1 backward."""
        self.best: dict[tuple[str, int], float] = {}
        self.forward_s = float("inf")
        self.values: dict[str, int] = {}
        self.parameters: dict[str, int] = {}

    def watch(self, path: str, leaf: nn.Module) -> list[Any]:
        """Hook one module; the handles take the hooks away."""
        self.parameters[path] = sum(parameter.numel() for parameter in leaf.parameters())
        return [
            leaf.register_forward_pre_hook(self._start(path)),
            leaf.register_forward_hook(self._end(path)),
            leaf.register_full_backward_pre_hook(self._start(path)),
            leaf.register_full_backward_hook(self._behind(path)),
        ]

    def begin(self, *, warm: bool) -> None:
        """Begin a step; the one before counts where it was warm."""
        if warm:
            for key, seconds in self.step.items():
                self.best[key] = min(seconds, self.best.get(key, seconds))
        self.step = {}

    def whole(self, model: nn.Module, batch: Batch) -> object:
        """What a model gives; the seconds of its fastest forward are kept."""
        start = time.perf_counter()
        output = batch.through(model)
        self.forward_s = min(self.forward_s, time.perf_counter() - start)
        return output

    @property
    def between(self) -> float:
        """The share of a forward in which no module runs."""
        inside = sum(seconds for (_, way), seconds in self.best.items() if way == 0)
        return max(1.0 - inside / self.forward_s, 0.0)

    def _start(self, path: str) -> Callable[..., None]:
        def start(*_: object) -> None:
            self.stored.at = path
            self.began[path] = time.perf_counter()

        return start

    def _took(self, path: str, way: int) -> None:
        took = time.perf_counter() - self.began[path]
        self.step[path, way] = self.step.get((path, way), 0.0) + took

    def _end(self, path: str) -> Callable[..., None]:
        def end(_: nn.Module, inputs: object, output: object) -> None:
            self._took(path, 0)
            if path not in self.order:
                self.order.append(path)
            count = sum(tensor.numel() for tensor in tensors(output))
            self.values[path] = max(count // self.batch, 1)

        return end

    def _behind(self, path: str) -> Callable[..., None]:
        def behind(*_: object) -> None:
            self._took(path, 1)

        return behind

    def sum_of(self, output: object) -> Tensor:
        """A number to go back from."""
        return torch.stack([part.float().sum() for part in tensors(output)]).sum()

    def nodes(self, other: _Clock | None) -> list[Node]:
        """A node for each module, in a chain, with its seconds at this clock's batch and another's.

        What runs between two modules keeps its tensors for the first of them.
        """
        made, before = [], INPUT
        kept = self.stored.values(self.order, self.batch)
        for path in self.order:
            forward, backward = (self._line(path, way, other) for way in (0, 1))
            operation = Measured(
                output=(self.values[path],),
                forward_s=forward.sample,
                backward_s=backward.sample,
                forward_call_s=forward.call,
                backward_call_s=backward.call,
                parameters=self.parameters[path],
                kept_values=kept[path],
            )
            made.append(Node(name=path, operation=operation, inputs=(before,)))
            before = path
        return made

    def _line(self, path: str, way: int, other: _Clock | None) -> Line:
        batches = [
            (clock.batch, clock.best.get((path, way), 0.0)) for clock in (self, other) if clock
        ]
        return line(batches[0], batches[1] if other else None)
