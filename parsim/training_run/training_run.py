"""Days, device-hours, dollars and kilowatt-hours of a whole run, from one predicted step.

    steps    = tokens / (global batch x sequence length), rounded up
    duration = steps x step time
    elapsed  = duration / goodput              with checkpoints, failures and restarts
    hours, dollars and energy                  those of all devices in the elapsed time

The step's 80 % interval passes through. Goodput's band is laid around it, which is more than 80 %.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

from parsim.cluster.hardware import Cluster
from parsim.cluster.prices import PriceBand, price_band
from parsim.cost.job import Job
from parsim.results import Result
from parsim.sim.prediction import Prediction
from parsim.training_run.estimate import Estimate
from parsim.training_run.failures import Goodput, TrainingGoal, goodput
from parsim.training_run.power import SPREAD, cluster_watts, computing_share, device_numbers
from parsim.units import DAY, HOUR, format_count

JOULES_PER_KWH = 3.6e6


SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TrainingRun(Result):
    """What a run takes; seconds, hours, US dollars, kilowatt-hours.

    `duration` is without interruptions, as papers quote it, `elapsed` with them; the rest is of the
    elapsed time. `price` is that of the cluster's mean device. `cost` and `energy` are None where
    no price, or no power, of a device is known. `unit` is what is counted: tokens, or the samples
    of a model that takes no tokens.
    """

    tokens: float
    steps: int
    devices: int
    duration: Estimate
    goodput: Goodput
    elapsed: Estimate
    device_hours: Estimate
    price: PriceBand | None
    cost: Estimate | None
    energy: Estimate | None
    unit: str = "tokens"

    @property
    def headline(self) -> str:
        """Tokens, days with their interval, and dollars."""
        low, days, high = (part / DAY for part in self.elapsed)
        cost = f", {self.cost.value:,.0f} US dollars" if self.cost else ""
        words = f"{format_count(self.tokens)} {self.unit} on {self.devices:,} devices"
        return f"{words}: {days:.3g} days ({low:.3g} to {high:.3g}){cost}"

    def records(self) -> list[dict[str, Any]]:
        """One row: every number, without the intervals."""
        document = self.to_json()
        return [{name: x for name, x in document.items() if not isinstance(x, list)}]

    def to_json(self) -> dict[str, Any]:
        """Plain data with units in the names."""
        return {
            "schema_version": SCHEMA_VERSION,
            "tokens": self.tokens,
            "counted": self.unit,
            "steps": self.steps,
            "devices": self.devices,
            **_with_interval("duration", "s", self.duration),
            "goodput": self.goodput.share.value,
            "goodput_band": self.goodput.share.to_json(),
            "mean_time_between_interruptions_s": self.goodput.between_interruptions,
            "checkpoint_interval_s": self.goodput.checkpoint_interval,
            "checkpoint_stall_s": self.goodput.checkpoint_stall,
            "restart_time_s": self.goodput.restart_time,
            **_with_interval("elapsed", "s", self.elapsed),
            **_with_interval("device_hours", "h", self.device_hours),
            "usd_per_device_hour": self.price and self.price.usual,
            "usd_per_device_hour_band": self.price and [self.price.low, self.price.high],
            "price_basis": self.price and self.price.basis,
            **_with_interval("cost", "usd", self.cost),
            **_with_interval("energy", "kwh", self.energy),
        }


def _with_interval(name: str, unit: str, estimate: Estimate | None) -> dict[str, Any]:
    value = None if estimate is None else estimate.value
    ends = None if estimate is None else estimate.to_json()
    return {f"{name}_{unit}": value, f"{name}_interval_{unit}": ends}


def training_run(
    job: Job, goal: TrainingGoal, *, batch: int, step: Estimate, computing: float
) -> TrainingRun | None:
    """What a run of a step takes; None where the goal names no tokens.

    Args:
        job: model, cluster, software.
        goal: tokens, price, failures.
        batch: sequences of a step.
        step: seconds of a step.
        computing: the share of it in which the mean device runs kernels, see `computing_share`.

    Raises:
        InputError: failures leave hardly any time to train.
    """
    if goal.tokens is None:
        return None
    devices, model = job.cluster.num_devices, job.model
    steps = ceil(goal.tokens / (batch * model.tokens))
    duration = step.times(steps)
    training = goodput(goal.failures, devices=devices, parameters=float(model.updated.parameters))
    elapsed = _with_interruptions(duration, training.share)
    hours, price = elapsed.times(devices / HOUR), _price(job.cluster, goal)
    watts = cluster_watts(job.cluster, computing, goal.pue)
    return TrainingRun(
        tokens=goal.tokens,
        steps=steps,
        devices=devices,
        duration=duration,
        goodput=training,
        elapsed=elapsed,
        device_hours=hours,
        price=price,
        cost=None if price is None else hours.times(price.usual),
        unit="tokens" if model.tokens > 1 else "samples",
        energy=None if watts is None else elapsed.times(watts / JOULES_PER_KWH).spread(SPREAD),
    )


def _with_interruptions(duration: Estimate, share: Estimate) -> Estimate:
    """Seconds of a run in which so large a share of the time is spent on steps that count."""
    return Estimate(
        duration.low / share.high, duration.value / share.value, duration.high / share.low
    )


def predicted_run(
    job: Job, goal: TrainingGoal, prediction: Prediction, slowdown: float = 1.0
) -> TrainingRun | None:
    """What a run of a predicted plan takes; None where the goal names no tokens.

    Each step takes `slowdown` times the predicted one, as on links that it shares.

    Raises:
        InputError: failures leave hardly any time to train.
    """
    interval = prediction.interval
    return training_run(
        job,
        goal,
        batch=prediction.plan.global_batch_size,
        step=Estimate(interval.low, prediction.step_time, interval.high).times(slowdown),
        computing=computing_share(prediction.breakdown, prediction.step_time) / slowdown,
    )


def _price(cluster: Cluster, goal: TrainingGoal) -> PriceBand | None:
    """The stated price, or the mean of the catalog's over all devices; None where one lacks."""
    stated = goal.usd_per_device_hour
    if stated is not None:
        return PriceBand(low=stated, usual=stated, high=stated, basis="stated")
    bands = [(price_band(device.id), number) for device, number in device_numbers(cluster)]
    known = [(band, number / cluster.num_devices) for band, number in bands if band is not None]
    if len(known) < len(bands):
        return None
    return PriceBand(
        low=sum(share * band.low for band, share in known),
        usual=sum(share * band.usual for band, share in known),
        high=sum(share * band.high for band, share in known),
        basis="; ".join(dict.fromkeys(band.basis for band, _ in known)),
    )
