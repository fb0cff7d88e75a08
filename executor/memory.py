"""Peak of allocated tensor bytes on a rank: the device's own counter, or the CPU's allocations.

On the CPU torch keeps no counter, so one step runs under its profiler, which records every
allocation and release; their running sum above what was alive before is the step's own peak.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

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
    return standing_bytes(trainer) + _cpu_peak(step)


def standing_bytes(trainer: Trainer) -> float:
    """Bytes of parameters, gradients, buckets and optimizer states; each storage once."""
    storages = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for tensor in _standing(trainer)
    }
    return float(sum(storages.values()))


def _standing(trainer: Trainer) -> Iterator[Tensor]:
    for replica in trainer.replicas:
        for parameter in replica.stage.parameters():
            yield _local(parameter.detach())
            if parameter.grad is not None:
                yield _local(parameter.grad)
        if replica.buckets is not None:
            yield from (bucket.flat for bucket in replica.buckets.buckets)
    for state in trainer.optimizer.inner.state.values():
        yield from (_local(value) for value in state.values() if isinstance(value, Tensor))
    yield from (master.values.detach() for master in trainer.optimizer.masters.values())


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
