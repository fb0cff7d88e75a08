"""Which kernels a step runs, and where the device idles between them.

    python -m executor.first_hour.kernels OUT.json --model '{"name": "gpt2"}'

One step of one rank under torch's profiler, behind a warm-up. On a CPU operators stand for kernels:
one rank has one thread, so they follow each other too.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.profiler import ProfilerActivity

from executor.devices.accelerator import accelerator
from executor.faults.parent import command
from executor.first_hour.alone import Alone, each_alone, options_of
from executor.measure.exposed import gaps, merged

LISTED = 40
"""Kernels that are listed, the longest in all first."""

LONG = 20e-6
"""A gap that is told alone, seconds: some launches long."""


class Kernel(NamedTuple):
    """One kernel: name, begin and end in seconds."""

    name: str
    start: float
    end: float


def profiled(here: Alone) -> list[Kernel]:
    """The kernels of one step, by begin."""
    source = here.endless()
    for _ in range(3):
        here.trainer.step(*next(source))
    accelerator(here.device).synchronize()
    cuda = here.device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    with torch.profiler.profile(activities=activities) as profiler:
        here.trainer.step(*next(source))
        accelerator(here.device).synchronize()
    kernels = [
        Kernel(event.name, 1e-6 * event.time_range.start, 1e-6 * event.time_range.end)
        for event in profiler.events() or ()
        if is_kernel(event, cuda=cuda)
    ]
    return sorted(kernels, key=lambda kernel: kernel.start)


def is_kernel(event: Any, *, cuda: bool) -> bool:  # noqa: ANN401 - torch has no type for it
    """Whether an event of the profiler is a kernel; on a CPU an operator that no other calls.

    Torch repeats named ranges on the device, where they span kernels and the gaps between them.
    """
    kinds = torch.autograd.DeviceType
    if not cuda:
        return bool(event.device_type == kinds.CPU and event.cpu_parent is None)
    return bool(event.device_type == kinds.CUDA and not event.is_user_annotation)


def described(kernels: Sequence[Kernel]) -> dict[str, Any]:
    """Seconds by name, how long nothing ran, and between which kernels that was for long."""
    if not kernels:
        return {"kernels": 0}
    whole = (kernels[0].start, max(kernel.end for kernel in kernels))
    busy = merged((kernel.start, kernel.end) for kernel in kernels)
    idle = sum(end - start for start, end in gaps(busy, whole))
    return {
        "kernels": len(kernels),
        "span_s": whole[1] - whole[0],
        "idle_s": idle,
        "idle_share": idle / (whole[1] - whole[0]),
        "by_name": _by_name(kernels),
        "long_gaps": _long_gaps(kernels),
    }


def _by_name(kernels: Iterable[Kernel]) -> list[dict[str, Any]]:
    totals: dict[str, tuple[int, float]] = {}
    for kernel in kernels:
        count, seconds = totals.get(kernel.name, (0, 0.0))
        totals[kernel.name] = (count + 1, seconds + kernel.end - kernel.start)
    longest = sorted(totals.items(), key=lambda item: -item[1][1])[:LISTED]
    return [{"name": name, "count": n, "seconds": total} for name, (n, total) in longest]


def _long_gaps(kernels: Sequence[Kernel]) -> list[dict[str, Any]]:
    """The longest moments in which nothing ran, with what ran before and behind."""
    gaps, until, last = [], kernels[0].end, kernels[0].name
    for kernel in kernels[1:]:
        if kernel.start - until > LONG:
            gaps.append({"seconds": kernel.start - until, "after": last, "before": kernel.name})
        if kernel.end > until:
            until, last = kernel.end, kernel.name
    return sorted(gaps, key=lambda gap: -float(str(gap["seconds"])))[:LISTED]


def main() -> int:
    """Profile each model and write what was found; 1 if no kernel was recorded of one."""
    options = options_of("kernels", __doc__).parse_args()
    return command(lambda: _work(options))


def _work(options: argparse.Namespace) -> int:
    profiles = each_alone(options, lambda here: described(profiled(here)), _told)
    return int(any(profile["kernels"] == 0 for profile in profiles))


def _told(profile: Mapping[str, Any]) -> str:
    share = profile.get("idle_share")
    idles = "no kernel was recorded" if share is None else f"the device idles {share:.1%}"
    return f"{profile['kernels']} kernels, {idles}"


if __name__ == "__main__":
    raise SystemExit(main())
