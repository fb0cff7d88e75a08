"""Times the kernels that were chosen in their order, as far as the time reaches."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import NamedTuple

from executor.calibration.cases import kinds
from executor.calibration.cases.samples import Sample
from executor.calibration.cases.workloads import Case
from executor.calibration.choice.candidates import LEAST_SECONDS
from executor.calibration.gaps import OUT_OF_MEMORY, TIME_OVER, is_out_of_memory
from executor.calibration.timing.bench import Bench

REFERENCE = {"cpu": 512, "cuda": 4096}
"""Edge of the square product that is timed at start, middle and end."""
PATIENCE = 2.0
"""Times its seconds after which a part of the calibration leaves out what is left."""
MORE_SECONDS = 0.1
"""A shape is repeated longer by at most so much where there is time."""


class TimedKernels(NamedTuple):
    """Samples, the reference product at start, middle and end, and what was left out and why."""

    samples: list[Sample]
    moments: tuple[float, ...]
    left: list[tuple[Case, str]]


def measure(
    bench: Bench,
    listed: Sequence[Case],
    seconds: float,
    expected: float,
    until: float = math.inf,
) -> TimedKernels:
    """Time the cases on this rank in their order, as far as the time reaches.

    That is twice the seconds, but beyond `until` only what is left of them once.
    What they are `expected` to leave of the time goes to longer repeating. Updates, of which a step
    has one and which only memory bounds, are timed again at the end: the least of two moments that
    are seconds apart, as what others do to the memory lasts longer than the repeats.
    """
    now = time.perf_counter()
    end = min(now + PATIENCE * seconds, max(until, now + seconds))
    spare = (seconds - expected) / max(len(listed), 1)
    share = LEAST_SECONDS[bench.device.type] + min(max(spare, 0.0), MORE_SECONDS)
    reference = Case(kinds.GEMM, dict.fromkeys("mnk", REFERENCE[bench.device.type]))
    moments = [bench.sample(reference, share).seconds]
    timed: list[tuple[Case, Sample]] = []
    left: list[tuple[Case, str]] = []
    for i, case in enumerate(listed):
        if time.perf_counter() > end:
            left += [(late, TIME_OVER) for late in listed[i:]]
            break
        sample = _sample(bench, case, share)
        if sample is None:
            left.append((case, OUT_OF_MEMORY))
        else:
            timed.append((case, sample))
        if i == len(listed) // 2:
            moments.append(bench.sample(reference, share).seconds)
    for i, (case, sample) in enumerate(timed):
        if sample.kind in kinds.UPDATES and time.perf_counter() < end:
            again = bench.sample(case, share)
            timed[i] = (case, min(sample, again, key=lambda x: x.seconds))
    moments.append(bench.sample(reference, share).seconds)
    return TimedKernels([sample for _, sample in timed], tuple(moments), left)


def _sample(bench: Bench, case: Case, seconds: float) -> Sample | None:
    """A case's time, None where memory does not suffice."""
    try:
        return bench.sample(case, seconds)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return None
