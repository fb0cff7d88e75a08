"""Peak of allocated tensor bytes on a rank: the device's own counter, or the CPU's allocations.

On the CPU torch keeps no counter, so one step runs under its profiler, which records every
allocation and release; their running sum above what was alive before is the step's own peak.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

import torch
from torch import Tensor

from executor.train import Trainer


def peak_bytes(trainer: Trainer, device: torch.device, step: Callable[[], object]) -> float:
    """Highest number of tensor bytes alive during one step, what was alive before included."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        step()
        torch.cuda.synchronize(device)
        return float(torch.cuda.max_memory_allocated(device))
    trainer.optimizer.zero_grad()  # the profiler does not see memory freed that it saw nobody take
    gc.collect()
    return standing_bytes(device) + _cpu_peak(step)


def standing_bytes(device: torch.device) -> float:
    """Bytes of all floating-point tensors that Python knows of on a device; each storage once.

    Parameters, gradients, buckets, optimizer states, and what a pipeline receives messages into.
    Whole numbers are left out: they are the text that is trained on.
    """
    storages: dict[int, int] = {}
    for tensor in gc.get_objects():
        if issubclass(type(tensor), Tensor) and tensor.is_floating_point():
            storage = _local(tensor.detach()).untyped_storage()
            if storage.device == device:
                storages[storage.data_ptr()] = storage.nbytes()
    return float(sum(storages.values()))


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _cpu_peak(step: Callable[[], object]) -> float:
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profiler:
        step()
    events = profiler.profiler.kineto_results.events()
    moves = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    level = highest = 0
    for _, size in moves:
        level += size
        highest = max(highest, level)
    return float(highest)
