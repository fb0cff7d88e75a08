"""What a run is to reach, and goodput under failures: how much of its time trains.

A job of N devices is interrupted every M seconds; each time it restarts in R and repeats what it
did since the last checkpoint. Saving keeps it waiting for C seconds after every t of training:

    1/M = N / (a device's time between failures) + 1 / (that of all other causes)
    Young:  t = sqrt(2 C M)
    Daly:   t = sqrt(2 C M) (1 + sqrt(C / 2M) / 3 + (C / 2M) / 9) - C,   C < 2M
    goodput = t / (M e^(R/M) (e^((t + C)/M) - 1))         exact for exponential failures

Sources: J. W. Young, CACM 17 (1974) 530; J. T. Daly, Future Generation Computer Systems 22 (2006)
303. Left out: time in a queue, nodes that replace failed ones more slowly than R, and silent errors
that are found late.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp, expm1, sqrt
from typing import Final

from parsim.errors import InputError
from parsim.training_run.estimate import Estimate
from parsim.units import DAY, format_span

NODE: Final = 8
"""Devices of the nodes that rates per 1,000 node-days are quoted for."""

DEVICE_MTBF: Final = 2112 * DAY
"""Llama 3 405B: 419 unexpected interruptions in 54 days of 16,384 H100 (arXiv:2407.21783, table
5), 3.8 per 1,000 node-days."""
LEAST_RATE: Final = 2.0
"""Per 1,000 node-days; settled clusters report 2.3 and 2.9 (arXiv:2602.00277, 2605.09370)."""
MOST_RATE: Final = 15.0
"""Per 1,000 node-days: about 2 of 130 nodes a day under OPT-175B (metaseq's chronicles)."""
RESTART_TIME: Final = 600.0
"""Seconds; 5 to 20 minutes are reported (Meta RSC, arXiv:2410.21680; MegaScale, 2402.15627)."""
CHECKPOINT_BYTES: Final = 14.0
"""Bytes a parameter: bf16 weights, fp32 copy and Adam's moments; BLOOM-176B saved 13."""
STORAGE_BANDWIDTH: Final = 100e9
"""Bytes/s of a whole job: 50 to 200 GB/s in 40 production runs (VAST Data)."""

LEAST_GOODPUT: Final = 0.01
"""Below this a run hardly ever comes to its next checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """What interrupts a run; seconds. None: from the model's size, never, or by Daly.

    `device_mtbf` is the mean time between failures of one device with its share of host and
    network; `job_mtbf` that of causes that do not grow with the job. `checkpoint_stall` is how long
    a checkpoint keeps the devices waiting, `checkpoint_interval` the training between two.
    `stated` names what the user has said; the rest is from the sources above.
    """

    device_mtbf: float = DEVICE_MTBF
    job_mtbf: float | None = None
    restart_time: float = RESTART_TIME
    checkpoint_stall: float | None = None
    checkpoint_interval: float | None = None
    stated: frozenset[str] = frozenset()

    def between(self, devices: int) -> float:
        """Mean time between interruptions of a job of so many devices, seconds."""
        return _between(self.device_mtbf, self.job_mtbf, devices)


def _between(device_mtbf: float, job_mtbf: float | None, devices: int) -> float:
    return 1.0 / (devices / device_mtbf + (1.0 / job_mtbf if job_mtbf else 0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """The share of a run's time that trains, and how it comes about; seconds.

    `between_interruptions` is the mean time from one to the next, `checkpoint_interval` the
    training between two checkpoints, `checkpoint_stall` what one of them holds it up,
    `restart_time` what passes from an interruption to the first step after it.
    """

    share: Estimate
    between_interruptions: float
    checkpoint_interval: float
    checkpoint_stall: float
    restart_time: float


def young(stall: float, between: float) -> float:
    """Training between two checkpoints that loses the least, first order, seconds."""
    return sqrt(2.0 * stall * between)


def daly(stall: float, between: float) -> float:
    """Training between two checkpoints that loses the least, higher order, seconds."""
    if stall >= 2.0 * between:
        return between
    share = stall / (2.0 * between)
    return young(stall, between) * (1.0 + sqrt(share) / 3.0 + share / 9.0) - stall


def goodput_of(interval: float, stall: float, restart: float, between: float) -> float:
    """The share of time that trains, exact for failures that come at random."""
    exponent = (interval + stall + restart) / between
    if exponent > 500.0:  # beyond what a float holds
        return 0.0
    lost = exp(restart / between) * expm1((interval + stall) / between)
    return interval / (between * lost)


def goodput(failures: Failures, *, devices: int, parameters: float) -> Goodput:
    """What failures leave of a run of so many devices and a model of so many parameters.

    Where the rate of failures is not stated, the interval goes from settled clusters to fresh ones.

    Raises:
        InputError: less than 1 % of the time would train.
    """
    stall = failures.checkpoint_stall
    if stall is None:
        stall = CHECKPOINT_BYTES * parameters / STORAGE_BANDWIDTH
    between = failures.between(devices)
    interval = failures.checkpoint_interval or _interval(stall, between)
    shares = [
        goodput_of(interval, stall, failures.restart_time, time)
        for time in (_fresh(failures, devices), between, _settled(failures, devices))
    ]
    run = Goodput(
        share=Estimate(*shares),
        between_interruptions=between,
        checkpoint_interval=interval,
        checkpoint_stall=stall,
        restart_time=failures.restart_time,
    )
    _check_worth(run, devices)
    return run


def _check_worth(run: Goodput, devices: int) -> None:
    """Refuse failures that leave hardly any time to train."""
    if run.share.low < LEAST_GOODPUT:
        raise InputError(
            f"failures: {devices:,} devices are interrupted every "
            f"{format_span(run.between_interruptions)}, beside checkpoints of "
            f"{format_span(run.checkpoint_stall)} every {format_span(run.checkpoint_interval)} and "
            f"restarts of {format_span(run.restart_time)}: less than {100 * LEAST_GOODPUT:.0f} % "
            f"of the time would train; raise failures.device_mtbf, or lower checkpoint_stall, "
            f"checkpoint_interval or restart_time"
        )


def _interval(stall: float, between: float) -> float:
    """Daly's interval; no shorter than the checkpoint itself and one second."""
    return max(daly(stall, between), stall, 1.0)


def _fresh(failures: Failures, devices: int) -> float:
    return _at_rate(failures, devices, MOST_RATE)


def _settled(failures: Failures, devices: int) -> float:
    return _at_rate(failures, devices, LEAST_RATE)


def _at_rate(failures: Failures, devices: int, rate: float) -> float:
    """Time between interruptions at a rate per 1,000 node-days; as stated where it is stated."""
    if "device_mtbf" in failures.stated:
        return failures.between(devices)
    return _between(1000.0 * NODE * DAY / rate, failures.job_mtbf, devices)


PUE: Final = 1.1
"""Power usage effectiveness of large operators; others have 1.25 (Epoch AI, 2026)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingGoal:
    """What a run is to reach and what its hours cost.

    `tokens` are those to be trained on; None: nobody asks for a whole run. `usd_per_device_hour` is
    the price of one device with its host; None: the catalog's list prices. `pue` is what the site
    draws over what its servers draw.
    """

    tokens: float | None = None
    usd_per_device_hour: float | None = None
    pue: float = PUE
    failures: Failures = field(default_factory=Failures)
