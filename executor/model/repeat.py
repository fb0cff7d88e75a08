"""Functions whose inside is computed again in backward, so that forward keeps their inputs alone.

Torch's checkpointing repeats once for every call of backward. A backward in two actions is many
calls, I and one for each weight's W, so there (`backward_in_two`) what was computed again stays
until the graph lets it go:

    F   keeps the input     I   computes again once, all of it stays     W   lets go of it
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint, get_device_states, set_device_states

Function = Callable[..., Any]
_IN_TWO = ContextVar("_IN_TWO", default=False)


@contextmanager
def backward_in_two(in_two: bool) -> Iterator[None]:
    """The block in which forwards run whose backward is an I and a W, or not."""
    token = _IN_TWO.set(in_two)
    try:
        yield
    finally:
        _IN_TWO.reset(token)


def repeat(function: Function, *tensors: Tensor) -> Any:  # noqa: ANN401 - what the function gives
    """Run a function whose inside backward computes again; compilers see to it by themselves."""
    if not torch.compiler.is_compiling() and _IN_TWO.get() and torch.is_grad_enabled():
        return _Repeated(function, tensors).forward()
    return checkpoint(function, *tensors, use_reentrant=False)


class _Slot:
    """Where a saved tensor lies when it was computed again; the graph holds it."""

    tensor: Tensor | None = None


class _Enough(BaseException):
    """All that backward needs was computed again."""


class _Repeated:
    """A function, what it takes in, and where backward looks for what it saved."""

    def __init__(self, function: Function, tensors: tuple[Tensor, ...]) -> None:
        self._function, self._tensors = function, tensors
        self._slots: list[weakref.ref[_Slot]] = []
        self._surroundings = _Surroundings(tensors)

    def forward(self) -> Any:  # noqa: ANN401
        """Run it and keep nothing of its inside."""
        with saved_tensors_hooks(self._empty, self._filled):
            return self._function(*self._tensors)

    def _empty(self, _: Tensor) -> _Slot:
        slot = _Slot()
        self._slots.append(weakref.ref(slot))
        return slot

    def _filled(self, slot: _Slot) -> Tensor:
        if slot.tensor is None:
            self._again()
        if slot.tensor is None:
            raise RuntimeError("a repeated layer saved other tensors than in its forward")
        return slot.tensor

    def _again(self) -> None:
        left = iter(list(self._slots))
        count = 0

        def keep(tensor: Tensor) -> Tensor:
            nonlocal count
            tensor = tensor.detach()  # a graph that saves its own output would never go
            slot = next(left)()
            if slot is not None:
                slot.tensor = tensor
            count += 1
            if count == len(self._slots):
                raise _Enough
            return tensor

        inputs = [each.detach().requires_grad_(each.requires_grad) for each in self._tensors]
        with self._surroundings.again(), saved_tensors_hooks(keep, lambda kept: kept):
            try:
                self._function(*inputs)
            except _Enough:
                return


class _Surroundings:
    """What a forward's result hangs on beside its inputs: random numbers and autocast."""

    def __init__(self, tensors: tuple[Tensor, ...]) -> None:
        self._kind = tensors[0].device.type
        self._random = torch.get_rng_state()
        self._devices, self._states = get_device_states(*tensors)
        enabled = torch.is_autocast_enabled(self._kind)
        self._autocast = {"enabled": enabled, "dtype": torch.get_autocast_dtype(self._kind)}

    @contextmanager
    def again(self) -> Iterator[None]:
        """The block in which they are as they were."""
        with ExitStack() as stack:
            stack.enter_context(torch.random.fork_rng(self._devices, device_type=self._kind))
            torch.set_rng_state(self._random)
            set_device_states(self._devices, self._states, device_type=self._kind)
            stack.enter_context(torch.autocast(self._kind, **self._autocast))
            stack.enter_context(torch.enable_grad())
            yield
