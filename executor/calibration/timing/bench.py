"""Times calls on one device: kernels in their order, and whatever else can be repeated.

Every time is the least of repeated runs after a warm-up: on a shared machine it is the one that
can be repeated. A kernel runs over a ring of input sets larger than the caches, and its results
stay alive for a round, as activations do.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence
from itertools import cycle
from statistics import median
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist

from executor.calibration.cases import kinds
from executor.calibration.cases.samples import Sample
from executor.calibration.cases.workloads import TimedCase
from executor.calibration.choice.candidates import GRAIN, LEAST_SECONDS, input_sets
from executor.calibration.gaps import OUT_OF_MEMORY, TIME_OVER, is_out_of_memory
from executor.calibration.timing.ballast import Ballast
from executor.calibration.timing.operators import Call, Operators
from executor.devices.accelerator import accelerator
from executor.devices.all_ranks import largest
from executor.parallel.precision import compute_fp32_as
from parsim.errors import InputError

DTYPES = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}


class Bench:
    """Times cases on one device in one precision."""

    def __init__(self, device: torch.device, precision: str) -> None:
        if precision not in DTYPES:
            raise InputError(
                f"precision {precision} cannot be calibrated; allowed: {', '.join(DTYPES)}"
            )
        self.device = device
        self.operators = Operators(device, DTYPES[precision])
        compute_fp32_as(precision)
        self._asked = accelerator(device)
        self._ballast = Ballast(device) if self._asked.queued else None

    def sample(self, case: TimedCase, seconds: float) -> Sample:
        """The least time of a case within about so many seconds."""
        seconds_taken = self.least(self._round(case), seconds)
        if case.kind in kinds.BEHIND:
            ahead = case._replace(kind=kinds.BEHIND[case.kind])
            before = self.least(self._round(ahead), seconds)
            seconds_taken = max(seconds_taken - before, 0.1 * before)
        return Sample(kind=case.kind, shape=case.shape, seconds=seconds_taken)

    def _round(self, case: TimedCase) -> Call:
        """A call that takes the next set of the ring every time, and keeps the last results."""
        build = self.operators.build(case)
        count = math.ceil(input_sets(case, self.device.type))
        calls = cycle([build() for _ in range(count)])
        kept: deque[object] = deque(maxlen=count)
        return lambda: kept.append(next(calls)())

    def least(self, work: Call, seconds: float) -> float:
        """Least seconds of one call: two warm-up calls, then 3 to 50 timings."""
        work()
        once = max(self.elapsed(work, 1), 1e-7)
        inner = min(max(math.ceil(GRAIN / once), 1), 100)
        repeats = min(max(int(seconds / (once * inner)), 3), 50)
        return min(self.elapsed(work, inner) for _ in range(repeats))

    def elapsed(self, work: Call, inner: int) -> float:
        """Seconds of one call, mean over `inner` calls in a row."""
        if self._ballast is not None:
            self._ballast()
        start = self._asked.mark()
        for _ in range(inner):
            work()
        end = self._asked.mark()
        self._asked.synchronize()
        return self._asked.seconds(start, end) / inner

    def typical(self, work: Call | None, seconds: float) -> float:
        """Median seconds of a call that ranks make together; the same repeats on each.

        A rank without one waits for the others; rank 0 has one. Not the least: a step waits for
        many collectives, so it meets their middle.
        """
        if work is not None:
            work()
        began = time.perf_counter()
        self._together(work)
        lasted = time.perf_counter() - began  # with the barrier and what keeps a GPU busy before
        once = torch.tensor(lasted, dtype=torch.float64, device=self.device)
        dist.broadcast(once, 0)
        repeats = min(max(int(seconds / max(float(once), 1e-6)), 5), 100)
        return median(self._together(work) for _ in range(repeats))

    def slowest(self, work: Call | None, rounds: int) -> float:
        """Median over rounds of the slowest rank's seconds, host and device done.

        To be called on all ranks; one without work waits for the others.
        """
        return self.slowest_of((work,), rounds)[0]

    def slowest_of(self, works: Sequence[Call | None], rounds: int) -> list[float]:
        """`slowest` of several works that take turns: a slower minute meets all of them alike."""
        times = np.array([list(map(self._slowest, works)) for _ in range(rounds + 1)])
        return list(map(float, np.median(times[1:], axis=0)))  # the first round warms up

    def _slowest(self, work: Call | None) -> float:
        dist.barrier()
        began = time.perf_counter()
        if work is not None:
            work()
            self._asked.synchronize()
        return largest(time.perf_counter() - began, self.device)

    def _together(self, work: Call | None) -> float:
        dist.barrier()
        return 0.0 if work is None else self.elapsed(work, 1)


REFERENCE = {"cpu": 512, "cuda": 4096}
"""Edge of the square product that is timed at start, middle and end."""
PATIENCE = 2.0
"""Times its seconds after which a part of the calibration leaves out what is left."""
MORE_SECONDS = 0.1
"""A shape is repeated longer by at most so much where there is time."""


class TimedKernels(NamedTuple):
    """Samples and their cases, the reference product at start, middle and end, what was left out.

    What was left out has the reason beside it.
    """

    samples: list[Sample]
    cases: list[TimedCase]
    moments: list[float]
    left: list[tuple[TimedCase, str]]


def measure(
    bench: Bench,
    listed: Sequence[TimedCase],
    seconds: float,
    expected: float,
    until: float = math.inf,
) -> TimedKernels:
    """Time the cases on this rank in their order, as far as the time reaches.

    That is twice the seconds, but beyond `until` only what is left of them once.
    What they are `expected` to leave of the time goes to longer repeating.
    """
    now = time.perf_counter()
    end = min(now + PATIENCE * seconds, max(until, now + seconds))
    spare = (seconds - expected) / max(len(listed), 1)
    share = LEAST_SECONDS[bench.device.type] + min(max(spare, 0.0), MORE_SECONDS)
    timed = TimedKernels(samples=[], cases=[], moments=[_reference(bench, share)], left=[])
    for i, case in enumerate(listed):
        if time.perf_counter() > end:
            timed.left.extend((late, TIME_OVER) for late in listed[i:])
            break
        sample = _sample(bench, case, share)
        if sample is None:
            timed.left.append((case, OUT_OF_MEMORY))
        else:
            timed.samples.append(sample)
            timed.cases.append(case)
        if i == len(listed) // 2:
            timed.moments.append(_reference(bench, share))
    timed.moments.append(_reference(bench, share))
    return timed


def updates_again(bench: Bench, kernels: TimedKernels) -> TimedKernels:
    """Times updates once more, of which the least counts; for a rank while the others wait.

    A step has one update, which only memory bounds. Ranks that time their kernels at once come to
    it at once, and each takes of the other's memory; and what other processes do to it lasts for
    longer than the repeats do.
    """
    share = LEAST_SECONDS[bench.device.type]
    samples = [
        min(sample, bench.sample(case, share), key=lambda x: x.seconds)
        if case.kind in kinds.UPDATES
        else sample
        for case, sample in zip(kernels.cases, kernels.samples, strict=True)
    ]
    return kernels._replace(samples=samples)


def _reference(bench: Bench, seconds: float) -> float:
    """Seconds of the square product whose times tell how quiet the machine is."""
    edge = REFERENCE[bench.device.type]
    return bench.sample(TimedCase(kinds.GEMM, dict.fromkeys("mnk", edge)), seconds).seconds


def _sample(bench: Bench, case: TimedCase, seconds: float) -> Sample | None:
    """A case's time, None where memory does not suffice."""
    try:
        return bench.sample(case, seconds)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return None
