"""Copies of tensors between a rank's device and its host's memory, beside what the device computes.

    compute  |  F 0  |  F 1  |  F 2  | ...        a copy waits for what was launched before it,
    copies       |--- 0 ---|--- 1 ---| ...        whoever needs its result waits for the copy

On CUDA the host's side is pinned and the copies have a queue of their own. On a CPU the device is
the host: what leaves is copied all the same, so that nothing depends on the tensor that was there,
and what comes back is that copy.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

Moment = Any
"""When a copy is over: an event on CUDA, nothing on a CPU."""


class Copier(Protocol):
    """Copies flat tensors to the host and back; what is there is the copier's own affair."""

    behind: int
    """Layers whose copies may still be on their way."""

    def leave(self, tensor: Tensor) -> tuple[Any, Moment]:
        """Copy to the host; the tensor must live until that moment."""

    def bring(self, copied: Any) -> tuple[Tensor, Moment]:  # noqa: ANN401
        """Copy back to the device."""

    def wait(self, moment: Moment) -> None:
        """Let what is launched from now on wait for a copy."""


class HostCopier:
    """On a CPU: a copy of its own, which comes back as it is."""

    behind = 0

    def leave(self, tensor: Tensor) -> tuple[Tensor, Moment]:
        """A copy of a tensor."""
        return tensor.clone(), None

    def bring(self, copied: Tensor) -> tuple[Tensor, Moment]:
        """The copy that left."""
        return copied, None

    def wait(self, moment: Moment) -> None:
        """Nothing is ever under way."""
        del moment


class CudaCopier:
    """On a GPU: pinned memory and a stream of its own; `cuda` answers for it."""

    behind = 2

    def __init__(self, device: torch.device, cuda: Any) -> None:  # noqa: ANN401
        self._device, self._cuda = device, cuda
        self._stream = cuda.Stream(device)

    def leave(self, tensor: Tensor) -> tuple[Tensor, Moment]:
        """Copy to pinned memory, behind what was launched."""
        pinned = torch.empty_like(tensor, device="cpu", pin_memory=self._cuda is torch.cuda)
        return pinned, self._copy(tensor, pinned)

    def bring(self, copied: Tensor) -> tuple[Tensor, Moment]:
        """Copy to new memory of the device, which nothing launched before may still use."""
        there = torch.empty_like(copied, device=self._device)
        return there, self._copy(copied, there)

    def wait(self, moment: Moment) -> None:
        """The device's queue waits, not the host."""
        self._cuda.current_stream(self._device).wait_event(moment)

    def _copy(self, source: Tensor, target: Tensor) -> Moment:
        self._stream.wait_stream(self._cuda.current_stream(self._device))
        with self._cuda.stream(self._stream):
            target.copy_(source, non_blocking=True)
            moment = self._cuda.Event(enable_timing=True)
            moment.record()
        return moment
