"""Activations of a stage's first layers in the host's memory between forward and backward.

    forward   every tensor that a layer saves for backward leaves for the host; the device's own is
              let go when its copy is over, at the latest two layers on
    backward  the first tensor that a layer asks for brings all of its tensors back, and those of
              the layer before it, whose backward is next

What is saved as several views of one piece of memory is copied once. Parameters stay, and so do
tensors that are no dense piece of memory (broadcast ones) or no plain tensors. Values come back
with their bits and their strides, so that gradients are those without copies to the bit.

What recomputation starts from goes to the host too (`repeated`): checkpointing holds it beside
what autograd saves.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from executor.devices.accelerator import accelerator
from executor.devices.copies import Copier, Moment
from executor.model.repeat import repeat
from executor.torch_internals.distributed import stored_tensor

Key = tuple[int, int, torch.dtype]
"""Where a piece of memory begins, its values and their kind."""


class Piece:
    """A piece of memory that is on the host, and for a while on the device again."""

    def __init__(self, copier: Copier, flat: Tensor) -> None:
        self._copier = copier
        self._copied, self.left = copier.leave(flat)
        self._returned: tuple[Tensor, Moment] | None = None

    def bring(self) -> tuple[Tensor, Moment]:
        """Begin to copy it back, unless that has begun; its values on the device, and from when."""
        if self._returned is None:
            self._returned = self._copier.bring(self._copied)
        return self._returned

    def on_device(self) -> Tensor:
        """Its values on the device, once they are there."""
        values, arrived = self.bring()
        self._copier.wait(arrived)
        return values


class Saved(ABC):
    """A tensor that is saved for backward, wherever it is."""

    def __init__(self, tensor: Tensor) -> None:
        self._asks = tensor.requires_grad

    @abstractmethod
    def tensor(self) -> Tensor:
        """Its values, on the device."""

    def again(self) -> Tensor:
        """Its values for a forward that is repeated: a leaf that asks for gradients as it did."""
        return self.tensor().detach().requires_grad_(self._asks)


class OnDevice(Saved):
    """A saved tensor that stays where it is."""

    def __init__(self, tensor: Tensor) -> None:
        super().__init__(tensor)
        self._tensor = tensor

    def tensor(self) -> Tensor:
        """The tensor itself."""
        return self._tensor


class OnHost(Saved):
    """A saved tensor that is a view of a piece of memory on the host."""

    def __init__(self, tensor: Tensor, layer: LayerPass, piece: Piece) -> None:
        super().__init__(tensor)
        self._layer, self._piece = layer, piece
        self._size, self._stride = tensor.size(), tensor.stride()

    def tensor(self) -> Tensor:
        """Its values, brought back with all others of its layer."""
        self._layer.bring()
        return self._piece.on_device().as_strided(self._size, self._stride)


class LayerPass:
    """One layer's forward of one micro-batch: its pieces, and the layer before."""

    def __init__(self, store: HostStore, before: LayerPass | None) -> None:
        self._store, self._before = store, before
        self._pieces: dict[Key, Piece] = {}
        self._sources: list[Tensor] = []
        self.parameters: frozenset[int] = frozenset()

    def save(self, tensor: Tensor) -> Saved:
        """Let a tensor that is saved for backward leave."""
        if not self._leaves(tensor):
            return OnDevice(tensor)
        flat = tensor.detach().as_strided((tensor.numel(),), (1,), tensor.storage_offset())
        key = (flat.data_ptr(), flat.numel(), flat.dtype)
        if key not in self._pieces:
            self._pieces[key] = Piece(self._store.copier, flat)
            self._sources.append(flat)  # no address is used again while its copy is under way
            self._store.moved += flat.nbytes
        return OnHost(tensor, self, self._pieces[key])

    def _leaves(self, tensor: Tensor) -> bool:
        """Whether it is a dense piece of the device's memory that no parameter has."""
        plain = type(tensor) in (Tensor, nn.Parameter) and tensor.device == self._store.device
        if not plain or tensor.numel() == 0 or not is_dense(tensor):
            return False
        return tensor.untyped_storage().data_ptr() not in self.parameters

    def end(self) -> tuple[list[Moment], list[Tensor]]:
        """Forward is over: when its copies are, and what they copy."""
        sources, self._sources = self._sources, []
        return [piece.left for piece in self._pieces.values()], sources

    def bring(self) -> None:
        """Bring all pieces back, and those of the layer whose backward is next."""
        self._store.settle()
        before = self._before._pieces if self._before is not None else {}
        for piece in (*self._pieces.values(), *before.values()):
            piece.bring()


class HostStore:
    """What a stage's layers have in the host's memory; `moved` counts the bytes that left."""

    def __init__(self, device: torch.device, copier: Copier) -> None:
        self.device, self.copier = device, copier
        self.moved = 0
        self.passing: LayerPass | None = None
        self._last: weakref.ref[LayerPass] | None = None
        self._leaving: deque[tuple[list[Moment], list[Tensor]]] = deque()

    @contextmanager
    def kept(self, layer: nn.Module, *, first: bool) -> Iterator[None]:
        """Let all that a layer saves inside the block leave; `first` begins a micro-batch."""
        before = None if first or self._last is None else self._last()
        passing = self.passing = LayerPass(self, before)
        passing.parameters = frozenset(
            stored_tensor(parameter).untyped_storage().data_ptr()
            for parameter in layer.parameters()
        )
        try:
            with saved_tensors_hooks(passing.save, lambda saved: saved.tensor()):
                yield
        finally:
            self.passing, self._last = None, weakref.ref(passing)
            self._leaving.append(passing.end())
            self.settle(self.copier.behind)

    def settle(self, behind: int = 0) -> None:
        """Let go of what has left, but for so many layers."""
        while len(self._leaving) > behind:
            moments, _ = self._leaving.popleft()
            for moment in moments[-1:]:  # copies are in order
                self.copier.wait(moment)


class HostLayer:
    """One of the layers of a stage that keep their activations on the host."""

    def __init__(self, store: HostStore, number: int) -> None:
        self.store, self._first = store, number == 0

    def kept(self, layer: nn.Module) -> Any:  # noqa: ANN401 - a context manager
        """The block inside which the layer's forward runs."""
        return self.store.kept(layer, first=self._first)


def keep_on_host(layers: nn.ModuleDict, count: int, device: torch.device) -> HostStore | None:
    """Let the first layers of a stage keep what they save for backward on the host."""
    if not count:
        return None
    store = HostStore(device, accelerator(device).copier())
    keep_in(store, list(layers.values())[:count])
    return store


def keep_in(store: HostStore, layers: Sequence[nn.Module]) -> None:
    """Let layers keep what they save for backward in a store."""
    for number, layer in enumerate(layers):
        host = HostLayer(store, number)
        for part in layer.modules():
            if hasattr(part, "host"):  # the layer, and an attention that repeats its core
                part.host = host


def repeated(function: Callable[..., Any], *tensors: Tensor, host: HostLayer | None = None) -> Any:  # noqa: ANN401 - what the function gives
    """Run a function whose inside backward computes again; its inputs are on the host with `host`.

    Checkpointing holds what a function takes in until it is repeated, so that there it takes in a
    mark alone (which says on which device random numbers are drawn).
    """
    passing = None if host is None else host.store.passing
    if passing is None or not torch.is_grad_enabled():
        return repeat(function, *tensors)
    saved, given = [passing.save(tensor) for tensor in tensors], [tensors]

    def inside(_mark: Tensor) -> Any:  # noqa: ANN401
        taken = given.pop() if given else tuple(each.again() for each in saved)
        return function(*taken)

    mark = tensors[0].new_empty(0)
    del tensors
    return repeat(inside, mark)


def is_dense(tensor: Tensor) -> bool:
    """Whether its values fill a piece of memory once each, in any order."""
    filled = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.size(), strict=True)):
        if size == 1:
            continue
        if stride != filled:
            return False
        filled *= size
    return True
