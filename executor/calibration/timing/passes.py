"""Times passes of a module: medians over rounds, scatter, waits, and waits for a core."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from math import hypot, log, pi, sqrt
from pathlib import Path
from statistics import median
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from executor.calibration.timing.pace import Pace, at_pace, doubt, lost
from executor.devices.accelerator import accelerator
from executor.devices.all_ranks import largest
from executor.measure.exposed import exposed_of, overlap
from executor.measure.traffic import Traffic
from executor.model.loss import LossFn, cross_entropy

SCHEDULER = Path("/proc/thread-self/schedstat")
"""Linux: nanoseconds on a core, nanoseconds ready and waiting for one, time slices."""
BUSY = 0.05
"""Share of the time in the queue from which on a machine is busy with something else."""
PROBE = 0.03
"""Seconds that a thread computes to see whether it has a core."""

Forward = Callable[[Tensor], Tensor]
"""A module, or its call in a plan's precision."""


class Queue:
    """Counts from its making: `share` of the time that this thread waited for a core."""

    def __init__(self) -> None:
        self._began, self._waited = time.perf_counter(), waited()

    @property
    def share(self) -> float:
        """From 0 to 1; 0 where the system does not tell."""
        lasted = time.perf_counter() - self._began
        return min(max((waited() - self._waited) / lasted, 0.0), 1.0) if lasted > 0.0 else 0.0


def probed() -> float:
    """Share of a moment for which this thread waits for a core while it does nothing but compute.

    Ranks that exchange something wait for the threads of their own messages too: what others take
    from them is seen while they do not.
    """
    queue, end = Queue(), time.perf_counter() + PROBE
    while time.perf_counter() < end:
        pass
    return queue.share


def waited() -> float:
    """Seconds that this thread has been ready without a core; 0 where the system does not tell."""
    with suppress(OSError, ValueError, IndexError):
        return int(SCHEDULER.read_text(encoding="utf-8").split()[1]) * 1e-9
    return 0.0


LEAST_WAITED = 0.01
"""Share: what collectives add is never without any wait."""
WARM_UP, LEAST_ROUNDS, MOST_ROUNDS = 2, 3, 30
WATCHED = 3
"""Rounds whose waits are watched."""
LEAST_ADDED = 0.02
"""Share of a plain pass that sharding adds at least: the difference of two times may be below 0."""
MOST_SCATTER = 1.0
"""A difference of two times that are nearly equal is unknown, and no more than that."""


class Passes(NamedTuple):
    """Median seconds of forward and backward over some rounds, and how sure the medians are."""

    forward: float
    backward: float
    scatter: tuple[float, float] = (0.0, 0.0)

    def divided(self, count: int) -> Passes:
        """The seconds of one of several layers."""
        return self._replace(forward=self.forward / count, backward=self.backward / count)

    def beyond(self, bare: Passes) -> Passes:
        """What these passes take more than bare ones, at least LEAST_ADDED of those.

        Its scatter is that of both, in seconds, over the difference.
        """
        more, scatter = [], []
        for seconds, plain, sd, plain_sd in zip(
            self[:2], bare[:2], self.scatter, bare.scatter, strict=True
        ):
            added = max(seconds - plain, LEAST_ADDED * plain)
            more.append(added)
            scatter.append(min(hypot(sd * seconds, plain_sd * plain) / added, MOST_SCATTER))
        return Passes(more[0], more[1], (scatter[0], scatter[1]))

    def doubted(self, least: float) -> Passes:
        """Seconds as they are, with a scatter of at least so much."""
        return self._replace(scatter=(max(self.scatter[0], least), max(self.scatter[1], least)))


class PassTimer:
    """Times passes on a device; a rank that is `idle` takes part in agreeing on the rounds alone.

    `queued` are the shares of each timing in which others had this rank's core, or took its speed.
    """

    def __init__(self, device: torch.device, pace: Pace, *, idle: bool) -> None:
        self._device, self._pace, self._idle = device, pace, idle
        self.queued: list[float] = []

    def times(
        self,
        part: Forward,
        inputs: Tensor,
        targets: Tensor | None,
        seconds: float,
        criterion: LossFn = cross_entropy,
        *,
        exchanges: bool = False,
    ) -> Passes:
        """Median forward and backward; gradients are added to earlier ones, as in a step.

        Where other processes use the machine too, the least round, as for kernels: one that is
        late makes all ranks late that exchange something with it. Of a part that `exchanges`
        something with other ranks, messages take cores as well, in a step as here: whether others
        use the machine is then seen just before and behind. Rounds on a core that is slow for
        reasons outside of this machine count as at its quickest pace; of a part that exchanges
        something, if it is slow before and behind.
        """
        once = partial(self._once, part, inputs, targets, criterion)
        rounds = [] if self._idle else [once() for _ in range(WARM_UP)]
        lasted = torch.tensor(sum(rounds[-1]) if rounds else 0.0, device=self._device)
        dist.broadcast(lasted, 0)
        if self._idle:
            return Passes(0.0, 0.0)
        count = min(max(int(seconds / float(lasted)), LEAST_ROUNDS), MOST_ROUNDS)
        if exchanges:
            timed, queued, paces = self._among_messages(once, count)
        else:
            queue = Queue()
            paired = [(once(), self._pace.now()) for _ in range(count)]
            timed, paces = [seconds for seconds, _ in paired], [pace for _, pace in paired]
            queued = queue.share
        self.queued.append(max(queued, lost(paces)))
        return passes_of(at_pace(timed, paces), busy=queued > BUSY).doubted(doubt(paces))

    def _among_messages(
        self, once: Callable[[], tuple[float, float]], count: int
    ) -> tuple[list[tuple[float, float]], float, list[float]]:
        """Rounds, the share without a core and the slowest rank's pace, before and behind them."""
        shares, paces, timed = [probed()], [self._pace.now()], [once() for _ in range(count)]
        shares.append(probed())  # meanwhile the last messages arrive
        paces.append(self._pace.now())
        pace = largest(min(paces), self._device)
        return timed, max(shares), [pace] * count

    def waits(
        self, part: Forward, inputs: Tensor, targets: Tensor | None, alone: tuple[float, float]
    ) -> tuple[float, float]:
        """Median share that forward and backward wait, of what they take beyond `alone` seconds.

        Waits and lengths are of the same rounds, so a busy machine stretches both.
        """
        traffic, shares_waited = Traffic({"tp": ()}, self._device), []
        for _ in range(WATCHED):
            traffic.start()
            began, middle, behind, end = self._marks(part, inputs, targets)
            waits = exposed_of(traffic.stop())
            passes = (began, middle), (behind, end)
            shares_waited.append(
                [
                    overlap(waits, begin, stop)
                    / max(stop - begin - bare, LEAST_ADDED * (stop - begin))
                    for (begin, stop), bare in zip(passes, alone, strict=True)
                ]
            )
        ahead, after = (
            min(max(median(shares), LEAST_WAITED), 1.0)
            for shares in zip(*shares_waited, strict=True)
        )
        return ahead, after

    def _once(
        self, part: Forward, inputs: Tensor, targets: Tensor | None, criterion: LossFn
    ) -> tuple[float, float]:
        began, middle, behind, end = self._marks(part, inputs, targets, criterion)
        return middle - began, end - behind

    def _marks(
        self,
        part: Forward,
        inputs: Tensor,
        targets: Tensor | None,
        criterion: LossFn = cross_entropy,
    ) -> tuple[float, float, float, float]:
        """When forward and backward begin and end."""
        if inputs.is_floating_point():
            inputs = inputs.detach().clone().requires_grad_(True)
        began = self._now()
        out = part(inputs)
        out = out if targets is None else criterion(out, targets)
        middle = self._now()
        grad = torch.ones_like(out)
        behind = self._now()
        out.backward(grad)
        return began, middle, behind, self._now()

    def _now(self) -> float:
        accelerator(self._device).synchronize()
        return time.perf_counter()


def passes_of(rounds: Sequence[tuple[float, float]], *, busy: bool = False) -> Passes:
    """Typical seconds of rounds and their scatter, standard deviations of the logarithm.

    The median, whose scatter is 1.4826 MAD sqrt(pi / 2n), that of a normal's median; on a busy
    machine the least round, whose scatter is its distance from the median.
    """
    chosen, scatters = [], []
    for seconds in zip(*rounds, strict=True):
        middle, least = median(seconds), min(seconds)
        deviation = 1.4826 * median(abs(x - middle) for x in seconds) / middle
        chosen.append(least if busy else middle)
        scatters.append(log(middle / least) if busy else deviation * sqrt(0.5 * pi / len(seconds)))
    return Passes(chosen[0], chosen[1], (scatters[0], scatters[1]))
