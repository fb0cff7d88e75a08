"""Torch's profiler, reduced to named ranges, the device's kernels, or moves of the allocator."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import torch
from torch.autograd import profiler as autograd_profiler

_PROFILER: Any = getattr(torch._C, "_autograd", None)
_SCOPES: Any = getattr(getattr(torch._C, "_profiler", None), "RecordScope", None)
_EVENT_TYPE: Any = getattr(getattr(torch._C, "_profiler", None), "_EventType", None)
_ALLOCATION: Any = getattr(_EVENT_TYPE, "Allocation", None)


def start_ranges(*, kernels: bool) -> None:
    """Let torch's profiler record named ranges, no operators; and the device's kernels if asked.

    Its public form cannot leave operators out.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or it writes of each start on stderr
    # without Kineto torch would note events around operators, and no kernel
    session = autograd_profiler.profile(use_device="cuda" if kernels else None, use_kineto=True)
    config, activities = session.config(), session.kineto_activities
    _PROFILER._prepare_profiler(config, activities)
    _PROFILER._enable_profiler(config, activities, {_SCOPES.USER_SCOPE})


def stop_ranges() -> list[tuple[Any, bool]]:
    """What was recorded since `start_ranges`, each with whether it ran on the device.

    Names of ranges that torch repeats on the device are left out.
    """
    events = []
    for event in _PROFILER._disable_profiler().events():
        on_device = event.device_type() == torch.profiler.DeviceType.CUDA
        if not (on_device and event.is_user_annotation()):
            events.append((event, on_device))
    return events


def allocations(profiler: torch.profiler.profile) -> list[tuple[int, int]]:
    """What a profiler saw of the allocator: address and bytes, below 0 where given back, by time.

    Its public events have no addresses.
    """
    moves = []
    left = list(profiler.profiler.kineto_results.experimental_event_tree())
    while left:
        event = left.pop()
        left.extend(event.children)
        if event.tag == _ALLOCATION:
            fields = event.extra_fields
            moves.append((event.start_time_ns, fields.ptr, fields.alloc_size))
    return [(address, size) for _, address, size in sorted(moves, key=lambda move: move[0])]


def missing_parts() -> Iterator[str]:
    """What this torch lacks of the profiler, which must be kept from recording operators."""
    options = getattr(getattr(_PROFILER, "_enable_profiler", None), "__doc__", "") or ""
    for name in ("_prepare_profiler", "_enable_profiler", "_disable_profiler"):
        if not hasattr(_PROFILER, name):
            yield f"torch._C._autograd lacks {name}"
    if "scopes" not in options:
        yield "_enable_profiler lacks the parameter scopes"
    if not hasattr(_SCOPES, "USER_SCOPE"):
        yield "torch._C._profiler lacks RecordScope.USER_SCOPE"
    if _ALLOCATION is None:
        yield "torch._C._profiler lacks _EventType.Allocation"
