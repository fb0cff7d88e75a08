"""Times what was chosen, as far as the time reaches: kernels in their order, then whole layers."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import torch
import torch.distributed as dist

from executor.calibration.cases import kinds
from executor.calibration.cases.samples import Sample
from executor.calibration.cases.setting import Setting
from executor.calibration.cases.workloads import Case
from executor.calibration.choice.candidates import LEAST_SECONDS
from executor.calibration.timing.bench import Bench
from executor.calibration.timing.layers import LayerBench, LayerSample

REFERENCE = {"cpu": 512, "cuda": 4096}
"""Edge of the square product that is timed at start, middle and end."""
PATIENCE = 2.0
"""Times its seconds after which a part of the calibration leaves out what is left."""
MORE_SECONDS = 0.1
"""A shape is repeated longer by at most so much where there is time."""


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
    reference = Case(kinds.GEMM, dict.fromkeys("mnk", REFERENCE[bench.device.type]))
    moments = [bench.sample(reference, share).seconds]
    samples: list[Sample] = []
    for i, case in enumerate(listed):
        if time.perf_counter() > end:
            break
        samples.append(bench.sample(case, share))
        if i == len(listed) // 2:
            moments.append(bench.sample(reference, share).seconds)
    for i, sample in enumerate(samples):
        if sample.kind == kinds.OPTIMIZER and time.perf_counter() < end:
            samples[i] = min(sample, bench.sample(listed[i], share), key=lambda x: x.seconds)
    moments.append(bench.sample(reference, share).seconds)
    dropped = len(listed) - len(samples)
    note = f"{dropped} of {len(listed)} chosen shapes took longer than expected and were left out"
    return samples, tuple(moments), [note] if dropped else []


def measure_layers(
    bench: Bench, chosen: Setting, seconds: float, until: float = math.inf
) -> tuple[list[LayerSample], list[str]]:
    """Time the layers of all workloads for which there are enough ranks, and notes on the others.

    Where ranks share devices, layers of one rank on as many ranks as there are devices. No workload
    but the first begins after `until`, in seconds of this process's clock.
    """
    size, shared = dist.get_world_size(), chosen.groups.oversubscribed
    layers = LayerBench(bench.device, alone=shared, idle=dist.get_rank() >= chosen.groups.devices)
    runnable = [workload for workload in chosen.workloads if layers.runs(workload)]
    share = seconds / max(sum(map(layers.parts, runnable)), 1.0)
    end = min(time.perf_counter() + PATIENCE * seconds, until)
    samples: list[LayerSample] = []
    dropped = 0
    for i, workload in enumerate(runnable):
        late = torch.tensor(float(i > 0 and time.perf_counter() > end), device=bench.device)
        if size > 1:  # all ranks stop at the same workload
            dist.broadcast(late, 0)
        if late:
            dropped += 1
        else:
            samples += layers.samples(workload, share)
    note = f"whole layers of {dropped} of {len(runnable)} models were left out: the time was over"
    return samples, [note] if dropped else []
