"""Peak of allocated tensor bytes on a rank: the device's own counter, or the CPU's allocations.

On the CPU torch keeps no counter, so one step runs under its profiler, which records every
allocation and release; their running sum above what was alive before is the step's own peak.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from executor import compat
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
    return standing_bytes(device) + step_bytes(device, step)


def standing_bytes(device: torch.device) -> float:
    """Bytes of all floating-point tensors that Python knows of on a device; each storage once.

    Parameters, gradients, buckets, optimizer states, and what a pipeline receives messages into.
    Whole numbers are left out: they are the text that is trained on.
    """
    return float(sum(_storages(device).values()))


def _storages(device: torch.device) -> dict[int, int]:
    """Bytes of each storage by its address."""
    found: dict[int, int] = {}
    for tensor in gc.get_objects():
        if issubclass(type(tensor), Tensor) and tensor.is_floating_point():
            storage = _local(tensor.detach()).untyped_storage()
            if storage.device == device:
                found[storage.data_ptr()] = storage.nbytes()
    return found


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def step_bytes(device: torch.device, step: Callable[[], object]) -> float:
    """Highest sum of what a step took and had not given back, bytes."""
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profiler:
        step()
    moves = [Move(*move) for move in compat.allocations(profiler)]
    return highest(moves, frozenset(_storages(device)))


class Move(NamedTuple):
    """Memory taken (bytes above 0) or given back at an address."""

    address: int
    bytes: int


def highest(moves: Sequence[Move], standing: Collection[int]) -> float:
    """Highest level of a sequence of moves, from 0.

    What is given back in a thread of gloo's is not recorded. So memory that is neither given back
    nor part of a tensor afterwards counts at the moment it is taken only.

    Args:
        moves: in order of time.
        standing: addresses of the tensors that are there afterwards.
    """
    passing = _unreturned(moves, standing)
    level = peak = 0
    for index, move in enumerate(moves):
        peak = max(peak, level + move.bytes)
        level += 0 if index in passing else move.bytes
    return float(peak)


def _unreturned(moves: Sequence[Move], standing: Collection[int]) -> set[int]:
    """Moves that took memory which nothing says was returned, or kept."""
    open_at: dict[int, int] = {}
    found: set[int] = set()
    for index, move in enumerate(moves):
        if move.bytes <= 0:
            open_at.pop(move.address, None)
            continue
        if move.address in open_at:  # taken again, so it had been returned
            found.add(open_at[move.address])
        open_at[move.address] = index
    return found | {index for address, index in open_at.items() if address not in standing}
