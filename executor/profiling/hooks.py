"""The plain way: leaf modules in the order in which they run, each with its measured seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from parsim.errors import InputError
from parsim.model.graph.record import INPUT, Graph, Node
from parsim.model.graph.texts import Measured


def hooked(name: str, model: nn.Module, batch: Tensor, device: str) -> Graph:
    """Time the leaf modules of two steps, the second of which counts, and chain them.

    Joins, branches and what runs between modules are not seen: the chain has their modules one
    after another, and the time between them is nobody's.

    Raises:
        InputError: the module fails, or no leaf module runs.
    """
    if batch.is_floating_point():
        batch = batch.detach().requires_grad_()  # so that backward hooks see the first module too
    for _ in range(2):
        clock = _Clock(len(batch))
        handles = [
            handle
            for path, leaf in model.named_modules()
            if path and not list(leaf.children())
            for handle in clock.watch(path, leaf)
        ]
        try:
            output = model(batch)
            clock.sum_of(output).backward()
        except Exception as reason:  # whatever the user's code raises
            raise InputError(f"{name} failed: {type(reason).__name__}: {reason}") from None
        finally:
            for handle in handles:
                handle.remove()
    if not clock.order:
        raise InputError(f"{name}: no module inside of it was called, so nothing can be timed")
    shape = tuple(int(size) for size in batch.shape[1:])
    return Graph(name=name, input_shape=shape, nodes=tuple(clock.nodes()), device=device)


class _Clock:
    """Seconds, outputs and parameters of leaf modules as they are called."""

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.order: list[str] = []
        self.began: dict[str, float] = {}
        self.forward: dict[str, float] = {}
        self.backward: dict[str, float] = {}
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

    def _start(self, path: str) -> Callable[..., None]:
        def start(*_: object) -> None:
            self.began[path] = time.perf_counter()

        return start

    def _end(self, path: str) -> Callable[..., None]:
        def end(_: nn.Module, inputs: object, output: object) -> None:
            took = time.perf_counter() - self.began[path]
            if path not in self.order:
                self.order.append(path)
            self.forward[path] = self.forward.get(path, 0.0) + took
            tensors = [output] if isinstance(output, Tensor) else []
            count = sum(tensor.numel() for tensor in tensors)
            self.values[path] = max(count // self.batch, 1)

        return end

    def _behind(self, path: str) -> Callable[..., None]:
        def behind(*_: object) -> None:
            took = time.perf_counter() - self.began[path]
            self.backward[path] = self.backward.get(path, 0.0) + took

        return behind

    def sum_of(self, output: object) -> Tensor:
        """A number to go back from."""
        if isinstance(output, Tensor):
            return output.float().sum()
        parts = output.values() if isinstance(output, dict) else output
        return torch.stack([part.float().sum() for part in parts]).sum()  # type: ignore[attr-defined]

    def nodes(self) -> list[Node]:
        """A node for each module, in a chain."""
        made, before = [], INPUT
        for path in self.order:
            operation = Measured(
                output=(self.values[path],),
                forward_s=self.forward[path] / self.batch,
                backward_s=self.backward.get(path, 0.0) / self.batch,
                parameters=self.parameters[path],
                kept_values=self.values[path],
            )
            made.append(Node(name=path, operation=operation, inputs=(before,)))
            before = path
        return made
