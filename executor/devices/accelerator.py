"""The one place that asks a device for its queue, its clock, its memory and its state.

The host runs ahead of a GPU: a moment is an event in the device's queue, and reading it needs the
queue to be done. A CPU has no queue: a moment is host seconds. All that is asked of CUDA goes
through `Cuda`, which takes the module that answers, so that a stand-in of `torch.cuda` drives every
line of it where there is no GPU.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from executor.devices.copies import Copier, CudaCopier, HostCopier

if TYPE_CHECKING:
    from collections.abc import Callable

Mark = Any
"""A moment: host seconds on a CPU, an event in the device's queue on CUDA."""


class Accelerator(Protocol):
    """What is asked of a rank's device."""

    queued: bool
    """Whether the host runs ahead of it."""

    def synchronize(self) -> None:
        """Wait until all is done that was launched."""

    def mark(self) -> Mark:
        """This moment, behind all that was launched."""

    def origin(self) -> tuple[float, Mark]:
        """Host seconds and a mark of the same moment."""

    def seconds(self, start: Mark, end: Mark) -> float:
        """Seconds between two marks; the queue must be done."""

    def reset_peak(self) -> None:
        """Let a new peak of memory begin."""

    def peak_allocated(self) -> float | None:
        """Bytes of tensors at the peak; None where nobody counts."""

    def peak_reserved(self) -> float | None:
        """Bytes that the allocator held at the peak; None where there is none."""

    def clock(self) -> float | None:
        """Hz of the multiprocessors now; None where the device does not tell."""

    def power(self) -> float | None:
        """W drawn now; None where the device does not tell."""

    def generator_state(self) -> Tensor | None:
        """What the device's generator of random numbers draws next; None: the host's draws."""

    def set_generator_state(self, state: Tensor) -> None:
        """Let it go on from there."""

    def grouped_products(self) -> bool:
        """Whether one kernel multiplies the rows of many experts, in bf16."""

    def copier(self) -> Copier:
        """What copies tensors to the host's memory and back beside compute."""

    def choose(self) -> None:
        """Let this process use the device where none is named."""

    def release(self) -> float | None:
        """Give back what the allocator keeps; bytes of tensors that are left, where counted."""


class Host:
    """The processor itself."""

    queued = False

    def synchronize(self) -> None:
        """Nothing is ever under way."""

    def mark(self) -> Mark:
        """The host's clock, seconds."""
        return time.perf_counter()

    def origin(self) -> tuple[float, Mark]:
        """Marks are host seconds: theirs begin at 0."""
        return 0.0, 0.0

    def seconds(self, start: Mark, end: Mark) -> float:
        """Seconds from one mark to another."""
        return float(end - start)

    def reset_peak(self) -> None:
        """Forget the peak: nobody counts here."""

    def peak_allocated(self) -> float | None:
        """Nobody counts allocated bytes here."""

    def peak_reserved(self) -> float | None:
        """Nobody counts reserved bytes here."""

    def clock(self) -> float | None:
        """It does not tell."""

    def power(self) -> float | None:
        """It does not tell."""

    def generator_state(self) -> Tensor | None:
        """The host's generator is all there is."""

    def set_generator_state(self, state: Tensor) -> None:
        """There is none."""
        del state

    def grouped_products(self) -> bool:
        """Its fallback is a loop over experts."""
        return False

    def copier(self) -> Copier:
        """Plain copies on the host."""
        return HostCopier()

    def choose(self) -> None:
        """There is one."""

    def release(self) -> float | None:
        """Give memory back: nobody counts here."""


AMPERE = 8
"""Major compute capability of the first GPUs with bf16 matrix products."""


class Cuda:
    """A GPU; `cuda` answers for it, torch's own module but for rehearsals."""

    queued = True

    def __init__(self, device: torch.device, cuda: Any = torch.cuda) -> None:  # noqa: ANN401
        self._device, self._cuda = device, cuda

    def synchronize(self) -> None:
        """Wait until all is done that was launched."""
        self._cuda.synchronize(self._device)

    def mark(self) -> Mark:
        """An event in the queue."""
        event = self._cuda.Event(enable_timing=True)
        event.record()
        return event

    def origin(self) -> tuple[float, Mark]:
        """Host seconds right behind an event that is over."""
        self.synchronize()
        event = self.mark()
        event.synchronize()
        return time.perf_counter(), event

    def seconds(self, start: Mark, end: Mark) -> float:
        """The device's own milliseconds between two events."""
        return float(start.elapsed_time(end)) * 1e-3

    def reset_peak(self) -> None:
        """Let a new peak of memory begin."""
        self._cuda.reset_peak_memory_stats(self._device)

    def peak_allocated(self) -> float | None:
        """Bytes of tensors at the peak."""
        return float(self._cuda.max_memory_allocated(self._device))

    def peak_reserved(self) -> float | None:
        """Bytes that torch's allocator held at the peak."""
        return float(self._cuda.max_memory_reserved(self._device))

    def clock(self) -> float | None:
        """NVML says MHz."""
        megahertz = _told(lambda: self._cuda.clock_rate(self._device))
        return None if megahertz is None else 1e6 * megahertz

    def power(self) -> float | None:
        """NVML says mW."""
        milliwatts = _told(lambda: self._cuda.power_draw(self._device))
        return None if milliwatts is None else 1e-3 * milliwatts

    def generator_state(self) -> Tensor | None:
        """What dropout on the device draws next."""
        state: Tensor = self._cuda.get_rng_state(self._device)
        return state

    def set_generator_state(self, state: Tensor) -> None:
        """Let it go on from there."""
        self._cuda.set_rng_state(state, self._device)

    def grouped_products(self) -> bool:
        """GPUs have such a kernel from Ampere on."""
        return bool(self._cuda.get_device_capability(self._device)[0] >= AMPERE)

    def copier(self) -> Copier:
        """A stream of its own, and pinned memory."""
        return CudaCopier(self._device, self._cuda)

    def choose(self) -> None:
        """What is allocated, and NCCL, go there."""
        self._cuda.set_device(self._device)

    def release(self) -> float | None:
        """Behind all that was launched."""
        self.synchronize()
        self._cuda.empty_cache()
        return float(self._cuda.memory_allocated(self._device))


def gpu_names(cuda: Any = torch.cuda) -> tuple[str, ...]:  # noqa: ANN401
    """The GPUs that torch sees on this machine, in order."""
    count = cuda.device_count() if cuda.is_available() else 0
    return tuple(cuda.get_device_name(index) for index in range(count))


def built_nccl(cuda: Any = torch.cuda) -> tuple[int, ...]:  # noqa: ANN401
    """The version of NCCL that torch was built with."""
    return tuple(cuda.nccl.version())


def in_use(cuda: Any = torch.cuda) -> bool:  # noqa: ANN401
    """Whether this process has touched a GPU."""
    return bool(cuda.is_initialized())


def _told(ask: Callable[[], int]) -> float | None:
    """What the driver answers; None without its Python package, or where it refuses."""
    try:
        return float(ask())
    except Exception:  # the package raises errors of its own, and may be missing
        return None


HOST = Host()


def accelerator(device: torch.device) -> Accelerator:
    """What to ask of a rank's device."""
    return Cuda(device) if device.type == "cuda" else HOST
