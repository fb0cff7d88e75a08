"""Tells of rounds that no trainer takes: those of a strategy's worker, or of a pipeline's stage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from executor.measure.device_state import DeviceMonitor
from executor.measure.steps import Step
from executor.run.part import RankPart
from executor.run.step_log import StepLog
from executor.strategies.replays.log import Ended


@dataclass(slots=True)
class Teller:
    """Writes the rounds that end on this rank into the log of steps, each with its `rate`.

    `core_products` are what a small product took on its core behind each timed round, of a CPU.
    """

    log: StepLog
    rate: Callable[[int], float]
    monitor: DeviceMonitor
    warmup: int
    last: float = field(default=0.0)
    core_products: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, part: RankPart, rate: Callable[[int], float], worker: int | None = None) -> Teller:
        """The log of a run, nothing in it; of one `worker`, where each has losses of its own."""
        options, model = part.options, part.scenario.job.model
        log = StepLog(
            folder=options.out,
            tokens=part.scenario.fixed_plan().global_batch_size * model.tokens,
            steps=options.last_step,
            restart=0,
            samples=model.tokens == 1,
            worker=worker,
        )
        return cls(log, rate, DeviceMonitor(part.device), options.warmup)

    def add(self, ended: Ended) -> None:
        """Write one round."""
        step = Step(
            number=ended.round,
            seconds=ended.seconds - self.last,
            loss=ended.loss,
            gradient_norm=ended.norm,
            learning_rate=self.rate(ended.round),
            timed=ended.round >= self.warmup,
            device=self.monitor.look(),
        )
        self.last = ended.seconds
        if step.timed and step.device.core_product is not None:
            self.core_products.append(step.device.core_product)
        self.log.add(step)
