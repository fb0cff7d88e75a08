"""Times steps of a trainer: warm-up dropped, the slowest rank of each step, robust statistics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from executor.faults import HERE
from executor.spans import SpanRecorder
from executor.train import Trainer
from parsim.timeline import Timeline

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Seconds of repeated steps; the mean says nothing on a shared machine and is left out."""

    median: float
    min: float
    mad: float
    n: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Spread:
        """Median, minimum and median absolute deviation."""
        middle = median(seconds)
        return cls(
            median=middle,
            min=min(seconds),
            mad=median(abs(one - middle) for one in seconds),
            n=len(seconds),
        )

    def to_json(self) -> dict[str, Any]:
        """The contract's keys."""
        return {"median": self.median, "min": self.min, "mad": self.mad, "n": self.n}


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """What the steps of one rank gave: seconds after the warm-up, mean loss of every step."""

    seconds: tuple[float, ...]
    losses: tuple[float, ...]


def take_steps(
    trainer: Trainer, batches: Iterator[Batch], *, steps: int, warmup: int, device: torch.device
) -> Steps:
    """Take warm-up and measured steps; a step lasts until the slowest rank is done."""
    seconds, losses = [], []
    for number in range(warmup + steps):
        HERE.enter("step", number)
        lasted, found = _timed(trainer, next(batches), device)
        losses.append(mean_over_ranks(found, device))
        if number >= warmup:
            seconds.append(lasted)
    return Steps(seconds=tuple(seconds), losses=tuple(losses))


def _timed(trainer: Trainer, batch: Batch, device: torch.device) -> tuple[float, list[float]]:
    dist.barrier()
    begin = time.perf_counter()
    found = trainer.step(*batch)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    lasted = torch.tensor([time.perf_counter() - begin], dtype=torch.float64, device=device)
    dist.all_reduce(lasted, op=dist.ReduceOp.MAX)
    return float(lasted), found


def mean_over_ranks(losses: Sequence[float], device: torch.device) -> float:
    """Mean over micro-batches and over the ranks that have losses; the same on every rank."""
    total = torch.tensor([sum(losses), float(len(losses))], dtype=torch.float64, device=device)
    dist.all_reduce(total)
    return float(total[0] / total[1])


def record_step(trainer: Trainer, batch: Batch, device: torch.device) -> Timeline | None:
    """One more step, action by action; the Timeline on the first rank of each pipeline."""
    reducer = trainer.runner.reducer if trainer.runner else None
    group = trainer.mesh["pp"].get_group()
    recorder = SpanRecorder(group=group, device=device, reducer=reducer)
    dist.barrier()
    with recorder:
        if trainer.runner is None:
            _record_loop(trainer, recorder, batch)
        else:
            trainer.gradients(*batch)
        with recorder.measure("OPTIMIZER"):
            trainer.optimizer.step()
    return recorder.gather()


def _record_loop(trainer: Trainer, recorder: SpanRecorder, batch: Batch) -> None:
    """Without a pipeline: forward until the module returns, backward until the next one starts."""
    with _split(trainer.replicas[0].module, recorder) as close:
        trainer.gradients(*batch)
        close()


@contextmanager
def _split(module: nn.Module, recorder: SpanRecorder) -> Iterator[Callable[[], None]]:
    open_span: list[Any] = []
    microbatch = [-1]

    def end() -> None:
        if open_span:
            open_span.pop().__exit__(None, None, None)

    def begin(kind: str) -> None:
        end()
        span = recorder.measure(kind, stage=0, microbatch=microbatch[0])
        span.__enter__()
        open_span.append(span)

    def before(*_: object) -> None:
        microbatch[0] += 1
        begin("F")

    hooks = [
        module.register_forward_pre_hook(before),
        module.register_forward_hook(lambda *_: begin("B")),
    ]
    try:
        yield end
    finally:
        for hook in hooks:
            hook.remove()
