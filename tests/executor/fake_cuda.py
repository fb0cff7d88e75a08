"""A stand-in of `torch.cuda`, which answers from a host what is asked of a GPU."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


class FakeEvent:
    """A moment of the host's clock, which only a device that was waited for tells."""

    def __init__(self, cuda: FakeCuda, enable_timing: bool) -> None:
        assert enable_timing
        self._cuda, self._at = cuda, math.nan
        self._done = False

    def record(self) -> None:
        self._at = time.perf_counter()
        self._cuda.pending.append(self)

    def synchronize(self) -> None:
        self._done = True

    def elapsed_time(self, end_event: FakeEvent) -> float:
        assert self._done, "read before the queue was done"
        assert end_event._done, "read before the queue was done"
        return 1e3 * (end_event._at - self._at)


class FakeStream:
    """A queue beside the others, which notes what it waits for."""

    def __init__(self, device: object = None, priority: int = 0, **kwargs: object) -> None:
        self.waited: list[object] = []

    def wait_stream(self, stream: FakeStream) -> None:
        self.waited.append(stream)

    def wait_event(self, event: FakeEvent) -> None:
        assert not math.isnan(event._at), "waited for before it was recorded"
        self.waited.append(event)


class FakeCuda:
    """What is asked of `torch.cuda`, answered from a host."""

    def __init__(self) -> None:
        self.pending: list[FakeEvent] = []
        self.calls: list[str] = []
        self.state = torch.arange(16, dtype=torch.uint8)
        self.compute = FakeStream()

    def Event(self, enable_timing: bool = False) -> FakeEvent:
        return FakeEvent(self, enable_timing)

    def Stream(self, device: object = None, priority: int = 0) -> FakeStream:
        return FakeStream(device, priority)

    def current_stream(self, device: object = None) -> FakeStream:
        return self.compute

    @contextmanager
    def stream(self, stream: FakeStream) -> Iterator[None]:
        self.calls.append("stream")
        yield

    def synchronize(self, device: object = None) -> None:
        self.calls.append("synchronize")
        while self.pending:
            self.pending.pop().synchronize()

    def reset_peak_memory_stats(self, device: object = None) -> None:
        self.calls.append("reset")

    def max_memory_allocated(self, device: object = None) -> int:
        return 1000

    def max_memory_reserved(self, device: object = None) -> int:
        return 2000

    def clock_rate(self, device: object = None) -> int:
        return 1980

    def power_draw(self, device: object = None) -> int:
        raise ModuleNotFoundError("pynvml")

    def get_rng_state(self, device: object = "cuda") -> Tensor:
        return self.state.clone()

    def set_rng_state(self, new_state: Tensor, device: object = "cuda") -> None:
        self.state = new_state.clone()

    def get_device_capability(self, device: object = None) -> tuple[int, int]:
        return 9, 0

    def set_device(self, device: object) -> None:
        self.calls.append("set")

    def empty_cache(self) -> None:
        assert not self.pending, "freed before the queue was done"
        self.calls.append("empty")

    def memory_allocated(self, device: object = None) -> int:
        return 500

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return "set" in self.calls

    def device_count(self) -> int:
        return 2

    def current_device(self) -> int:
        return 0

    def get_device_name(self, device: object = None) -> str:
        return f"GPU {device}"
