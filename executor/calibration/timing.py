"""Times what was chosen, as far as the time reaches: kernels in their order, then whole layers."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from executor.calibration.candidates import LEAST_SECONDS
from executor.calibration.conclude import Setting
from executor.calibration.kernels import Bench
from executor.calibration.layers import LayerBench, LayerSample
from executor.calibration.sample import Sample
from executor.calibration.workloads import GEMM, OPTIMIZER, Case

REFERENCE = {"cpu": 512, "cuda": 4096}
"""Edge of the square product that is timed at start, middle and end."""
PATIENCE = 2.0
"""Times its seconds after which a part of the calibration leaves out what is left."""
MORE_SECONDS = 0.1
"""A shape is repeated longer by at most so much where there is time."""


@dataclass(slots=True)
class _Clock:
    """The reference product at several moments."""

    bench: Bench
    share: float
    moments: list[float] = field(default_factory=list)

    def tick(self) -> None:
        edge = REFERENCE[self.bench.device.type]
        reference = Case(GEMM, {"m": edge, "n": edge, "k": edge})
        self.moments.append(self.bench.sample(reference, self.share).seconds)


def measure(
    bench: Bench,
    listed: Sequence[Case],
    seconds: float,
    expected: float,
    until: float = math.inf,
) -> tuple[list[Sample], tuple[float, ...], list[str]]:
    """Time the cases on this rank in their order, as far as the time reaches.

    That is twice the seconds, but beyond `until` only what is left of them once.
    What they are `expected` to leave of the time goes to longer repeating. Updates, of which a step
    has one and which only memory bounds, are timed again at the end: the least of two moments that
    are seconds apart, as what others do to the memory lasts longer than the repeats.

    Returns:
        The samples, the reference product at start, middle and end, and notes.
    """
    now = time.perf_counter()
    end = min(now + PATIENCE * seconds, max(until, now + seconds))
    left = (seconds - expected) / max(len(listed), 1)
    share = LEAST_SECONDS[bench.device.type] + min(max(left, 0.0), MORE_SECONDS)
    clock = _Clock(bench, share)
    clock.tick()
    samples: list[Sample] = []
    for i, case in enumerate(listed):
        if time.perf_counter() > end:
            break
        samples.append(bench.sample(case, share))
        if i == len(listed) // 2:
            clock.tick()
    for i, one in enumerate(samples):
        if one.kind == OPTIMIZER and time.perf_counter() < end:
            samples[i] = min(one, bench.sample(listed[i], share), key=lambda x: x.seconds)
    clock.tick()
    dropped = len(listed) - len(samples)
    notes = [f"{dropped} of {len(listed)} chosen shapes took longer than expected and were left "
             f"out"] if dropped else []  # fmt: skip
    return samples, tuple(clock.moments), notes


def measure_layers(
    bench: Bench, chosen: Setting, seconds: float, until: float = math.inf
) -> tuple[list[LayerSample], list[str]]:
    """Time the layers of all workloads for which there are enough ranks, and notes on the others.

    Where ranks share devices, layers of one rank on as many ranks as there are devices. No workload
    but the first begins after `until`, in seconds of this process's clock.
    """
    size, shared = dist.get_world_size(), chosen.groups.oversubscribed
    layers = LayerBench(bench.device, alone=shared, idle=dist.get_rank() >= chosen.groups.devices)
    runnable = [one for one in chosen.workloads if layers.runs(one)]
    share = seconds / max(sum(map(layers.parts, runnable)), 1.0)
    end = min(time.perf_counter() + PATIENCE * seconds, until)
    found: list[LayerSample] = []
    dropped = 0
    for i, one in enumerate(runnable):
        late = torch.tensor(float(i > 0 and time.perf_counter() > end), device=bench.device)
        if size > 1:  # all ranks stop at the same workload
            dist.broadcast(late, 0)
        if late:
            dropped += 1
        else:
            found += layers.samples(one, share)
    notes = [f"whole layers of {dropped} of {len(runnable)} models were left out: the time was "
             f"over"] if dropped else []  # fmt: skip
    return found, notes
