"""Times the whole layers of a setting on every rank, and again those that kernels contradict."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.distributed as dist

from executor.calibration.cases.setting import CalibrationSetting
from executor.calibration.choice.layer_tasks import LayerTask, layer_tasks
from executor.calibration.conclude import constants_of, deviations
from executor.calibration.gaps import Gap, is_out_of_memory
from executor.calibration.measurements import Measurements
from executor.calibration.timing.layer_session import LayerSession
from executor.calibration.timing.layers import LayerBench, LayerSample
from executor.calibration.timing.pace import Pace
from executor.calibration.timing.rank_spread import RankSpread
from executor.devices.all_ranks import largest
from parsim.cluster.reader import load_catalog


class WholeLayers(NamedTuple):
    """A session of timed layers, and by what share ranks differed in them (standard deviation)."""

    session: LayerSession
    rank_spread: float


def time_layers(
    setting: CalibrationSetting,
    pace: Pace,
    seconds: float,
    until: float,
    measured: Measurements | None,
) -> WholeLayers:
    """Run a session; to be called on all ranks.

    Args:
        setting: what is calibrated.
        pace: of this rank's device.
        seconds: for all layers.
        until: when the last one may begin by this process's clock, if the seconds are over.
        measured: kernels and links, on rank 0.
    """
    timing = _Timing.of(setting, pace)
    tasks = layer_tasks(setting, setting.base or load_catalog().system("cpu"))
    runnable = [task for task in tasks if timing.layers.runs(task.workload)]
    session = LayerSession(
        time_task=timing.samples,
        agree=lambda value: _of_rank_0(value, pace.device),
        clock=time.perf_counter,
        end=max(until, time.perf_counter() + seconds),
        queued=lambda: max(timing.layers.queued, default=0.0),
    )
    session.gaps += [_too_few(task) for task in tasks if task not in runnable]
    session.first_pass(runnable, seconds)
    session.second_pass(runnable, _deviating(setting, measured))
    timing.layers.forget()
    return WholeLayers(session, timing.spread.value)


@dataclass(frozen=True, slots=True)
class _Timing:
    """Times tasks, and counts by how much the ranks differ in them."""

    layers: LayerBench
    spread: RankSpread

    @classmethod
    def of(cls, setting: CalibrationSetting, pace: Pace) -> _Timing:
        """What times the layers of a setting on this rank."""
        groups = setting.groups
        idle = dist.get_rank() >= groups.devices
        layers = LayerBench(pace.device, pace, alone=groups.oversubscribed, idle=idle)
        return cls(layers, RankSpread(pace.device, devices=groups.devices))

    def samples(self, task: LayerTask, share: float) -> list[LayerSample] | None:
        """Samples of a task, where all ranks have the memory."""
        samples = _try(self.layers, task, share)
        if samples is not None:
            queued = self.layers.queued
            self.spread.add(task, samples, queued[-1] if queued else 0.0)
        return samples


def _deviating(
    setting: CalibrationSetting, measured: Measurements | None
) -> Callable[[Sequence[LayerSample]], list[float]]:
    """How far layers are from the constants of what was measured; of no use on other ranks."""
    if measured is None:
        return lambda _: []
    device, system = constants_of(setting, measured, "")
    return lambda samples: deviations(setting, device, system, samples)


def _too_few(task: LayerTask) -> Gap:
    need = task.workload.plan.world_size
    why = f"not representable: needs {need} ranks with a device each"
    return Gap(
        kind=task.kind, words=task.words, reason=why, share=task.share, wanted=task.asked_for
    )


def _of_rank_0(value: float, device: torch.device) -> float:
    """Rank 0's number on all ranks."""
    shared = torch.tensor(value if math.isfinite(value) else 0.0, device=device)
    dist.broadcast(shared, 0)
    return float(shared)


def _try(layers: LayerBench, task: LayerTask, seconds: float) -> list[LayerSample] | None:
    """A task's samples; None on every rank where one of them has not enough memory.

    Ranks of one split are alike, so that they run out of memory at the same call.
    """
    samples: list[LayerSample] | None = None
    try:
        samples = layers.samples(task, seconds)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        layers.forget()
    failed = largest(float(samples is None), layers.device) > 0.0
    return None if failed else samples
