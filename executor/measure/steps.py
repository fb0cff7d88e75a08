"""Times steps of a trainer: warm-up dropped, the slowest rank of each step, robust statistics."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from executor.devices.accelerator import accelerator
from executor.devices.all_ranks import largest, largest_of_each
from executor.faults.reports import HERE
from executor.measure.device_state import DeviceMonitor, DeviceState
from executor.model.loss import Batch
from executor.training.trainer import Trainer

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Seconds of repeated steps; the mean says nothing on a shared machine and is left out.

    Of no steps at all nothing is known: NaN.
    """

    median: float
    min: float
    mad: float
    n: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Spread:
        """Median, minimum and median absolute deviation."""
        if not seconds:
            return cls(median=math.nan, min=math.nan, mad=math.nan, n=0)
        middle = median(seconds)
        return cls(
            median=middle,
            min=min(seconds),
            mad=median(abs(duration - middle) for duration in seconds),
            n=len(seconds),
        )

    def to_json(self) -> dict[str, Any]:
        """The contract's keys; null for what is not known."""
        return {name: known(value) for name, value in asdict(self).items()}


def known(value: float) -> float | None:
    """What JSON has for a number: null for what is infinite or undefined."""
    return value if math.isfinite(value) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one step of all ranks gave; `number` counts from 0 over the whole training.

    `seconds` are those of the slowest rank, `loss` is the mean, `device` the highest of all ranks
    (of clocks the lowest), `lost_on` the ranks whose own loss is infinite or undefined. In fp16
    the loss was multiplied by `loss_scale`, and a step whose gradients overflowed is `skipped`: it
    updated nothing, and is not `timed`.
    """

    number: int
    seconds: float
    loss: float
    gradient_norm: float
    learning_rate: float
    timed: bool
    device: DeviceState
    lost_on: tuple[int, ...] = ()
    loss_scale: float | None = None
    skipped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """What the steps of one rank gave: seconds after the warm-up, mean loss of every step.

    The losses are those of the whole training, the seconds those since its last start, `taken`
    also those of the warm-up; `restarts` says how often the ranks were started again. `lost_on`
    are the ranks whose own loss was infinite or undefined when the mean first was. `loss_scale` is
    the last one, None but in fp16, and `skipped` the steps of the whole training without an update.
    `core_products` are the seconds of a small product on the slowest rank's core behind each timed
    step, where ranks are on a CPU.
    """

    seconds: tuple[float, ...]
    losses: tuple[float, ...]
    restarts: int = 0
    lost_on: tuple[int, ...] = ()
    taken: tuple[float, ...] = ()
    loss_scale: float | None = None
    skipped: int = 0
    core_products: tuple[float, ...] = ()


def take_steps(
    trainer: Trainer,
    batches: Iterator[Batch],
    *,
    steps: int,
    warmup: int,
    device: torch.device,
    before: Sequence[float],
    after_step: Callable[[Step, Sequence[float]], None],
) -> Steps:
    """Take warm-up and measured steps; a step lasts until the slowest rank is done.

    Training that goes on begins behind the steps with the losses `before`, with another warm-up.
    `after_step` is called, outside of what is timed, with the step and the losses of all so far.
    """
    monitor, losses = DeviceMonitor(device), list(before)
    taken: list[Step] = []
    for number in range(len(before), warmup + steps):
        HERE.enter("step", number)
        step = _take(trainer, next(batches), number, monitor, timed=number >= len(before) + warmup)
        losses.append(step.loss)
        taken.append(step)
        after_step(step, losses)
    first_lost = next((step for step in taken if not math.isfinite(step.loss)), None)
    finite_before = all(map(math.isfinite, before))
    return Steps(
        seconds=tuple(step.seconds for step in taken if step.timed),
        losses=tuple(losses),
        lost_on=first_lost.lost_on if first_lost is not None and finite_before else (),
        taken=tuple(step.seconds for step in taken),
        loss_scale=_scale(trainer),
        skipped=trainer.optimizer.skipped,
        core_products=tuple(
            step.device.core_product for step in taken if step.timed and step.device.core_product
        ),
    )


def _scale(trainer: Trainer) -> float | None:
    """What the next loss is multiplied by, in fp16."""
    scaling = trainer.optimizer.scaling
    return None if scaling is None else scaling.scale


def _take(
    trainer: Trainer, batch: Batch, number: int, monitor: DeviceMonitor, *, timed: bool
) -> Step:
    device, rate = monitor.device, trainer.optimizer.set_rate(number)
    scale, before = _scale(trainer), trainer.optimizer.skipped
    lasted, step_losses = run_timed(partial(trainer.step, *batch), device, together=timed)
    loss = mean_over_ranks(step_losses, device)
    skipped = trainer.optimizer.skipped > before
    return Step(
        number=number,
        seconds=largest(lasted, device),
        loss=loss,
        gradient_norm=float(trainer.optimizer.norm),
        learning_rate=rate,
        timed=timed and not skipped,
        loss_scale=scale,
        skipped=skipped,
        device=_highest(monitor.look(), device),
        lost_on=() if math.isfinite(loss) else ranks_without_loss(step_losses, device),
    )


def _highest(state: DeviceState, device: torch.device) -> DeviceState:
    """The highest of all ranks' states, of their clocks the lowest."""
    clock = None if state.clock is None else -state.clock
    values = {**asdict(state), "clock": clock}
    known_here = [-math.inf if value is None else value for value in values.values()]
    pairs = zip(values, largest_of_each(known_here, device), strict=True)
    highest = {name: value if math.isfinite(value) else None for name, value in pairs}
    lowest = None if highest["clock"] is None else -highest["clock"]
    return DeviceState(**{**highest, "clock": lowest})


def run_timed(
    step: Callable[[], T], device: torch.device, *, together: bool = True
) -> tuple[float, T]:
    """Seconds that a step takes on this rank, and what it returns.

    All ranks begin it `together`: a step is from the first action to the last rank's end, and what
    rank 0 does between steps (its log, a checkpoint) is not in it. Only timings need that.
    """
    if together:
        dist.barrier()
    begin = time.perf_counter()
    result = step()
    accelerator(device).synchronize()
    return time.perf_counter() - begin, result


def mean_over_ranks(losses: Sequence[float], device: torch.device) -> float:
    """Mean over micro-batches and over the ranks that have losses; the same on every rank."""
    total = torch.tensor([sum(losses), float(len(losses))], dtype=torch.float64, device=device)
    dist.all_reduce(total)
    return float(total[0] / total[1])


def ranks_without_loss(losses: Sequence[float], device: torch.device) -> tuple[int, ...]:
    """The ranks of whose own losses one is infinite or undefined; the same on every rank."""
    lost = torch.zeros(dist.get_world_size(), dtype=torch.int64, device=device)
    lost[dist.get_rank()] = int(not all(map(math.isfinite, losses)))
    dist.all_reduce(lost)
    return tuple(rank for rank, count in enumerate(lost.tolist()) if count)
