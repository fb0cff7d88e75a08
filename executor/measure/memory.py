"""Peak of allocated tensor bytes on a rank: the device's own counter, or the CPU's allocations.

On the CPU torch keeps no counter, so one step runs under its profiler, which records every
allocation and release; their running sum above what was alive before is the step's own peak.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Sequence

import torch
from torch import Tensor

from executor.devices.accelerator import accelerator
from executor.model.factors import local_tensor
from executor.torch_internals.profiler import allocations
from executor.training.trainer import Trainer


def peak_bytes(trainer: Trainer, device: torch.device, step: Callable[[], object]) -> float:
    """Highest number of tensor bytes alive during one step, what was alive before included."""
    asked = accelerator(device)
    asked.reset_peak()
    if asked.peak_allocated() is not None:
        step()
        asked.synchronize()
        return float(asked.peak_allocated() or 0.0)
    trainer.optimizer.zero_grad()  # the profiler does not see memory freed that it saw nobody take
    peak = peak_above(device, step)
    return peak + (trainer.runner.kept_for_partner if trainer.runner is not None else 0)


def peak_above(device: torch.device, step: Callable[[], object]) -> float:
    """Highest bytes of tensors alive during a step on the CPU, those that were before included."""
    gc.collect()
    return float(sum(_storages(device).values())) + step_bytes(device, step)


def _storages(device: torch.device) -> dict[int, int]:
    """Bytes of all floating-point tensors that Python knows of on a device, by their address.

    Parameters, gradients, buckets, optimizer states, and what a pipeline receives messages into.
    Whole numbers are left out: they are the text that is trained on.
    """
    sizes: dict[int, int] = {}
    for tensor in gc.get_objects():
        if issubclass(type(tensor), Tensor) and tensor.is_floating_point():
            storage = local_tensor(tensor).untyped_storage()
            if storage.device == device:
                sizes[storage.data_ptr()] = storage.nbytes()
    return sizes


def step_bytes(device: torch.device, step: Callable[[], object]) -> float:
    """Highest sum of what a step took and had not given back, bytes."""
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profiler:
        step()
    return highest(allocations(profiler), frozenset(_storages(device)))


def highest(moves: Sequence[tuple[int, int]], standing: Collection[int]) -> float:
    """Highest level of a sequence of moves, from 0: addresses with bytes, below 0 if given back.

    What is given back in a thread of gloo's is not recorded. So memory that is neither given back
    nor part of a tensor afterwards (at `standing`) counts at the moment it is taken only.
    """
    passing = _unreturned(moves, standing)
    level = peak = 0
    for index, (_, size) in enumerate(moves):
        peak = max(peak, level + size)
        level += 0 if index in passing else size
    return float(peak)


def _unreturned(moves: Sequence[tuple[int, int]], standing: Collection[int]) -> set[int]:
    """Moves that took memory which nothing says was returned, or kept."""
    open_at: dict[int, int] = {}
    retaken: set[int] = set()
    for index, (address, size) in enumerate(moves):
        before = open_at.pop(address, None)
        if size > 0:
            if before is not None:  # taken again, so it had been returned
                retaken.add(before)
            open_at[address] = index
    return retaken | {index for address, index in open_at.items() if address not in standing}
