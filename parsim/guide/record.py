"""What a guide says: a row for each family, which one to take, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from parsim.cost.job import Job
from parsim.results import Result
from parsim.sim.confidence.memory_fit import RISK, Fit
from parsim.sim.prediction import Prediction

SCHEMA_VERSION = 1

OTHERWISE = "* trains otherwise than one device with the whole batch; convergence is not predicted"
"""What the star behind a family's name means."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyRow:
    """One family: its best plan's prediction, or why there is none.

    `speed_up` and `efficiency` are over one device with the same samples a step and device (None
    where one device has no prediction), `limits` what holds it back.
    """

    name: str
    same_training: bool
    prediction: Prediction | None
    reason: str = ""
    samples_per_second: float = 0.0
    speed_up: float | None = None
    efficiency: float | None = None
    limits: str = ""

    @property
    def fits(self) -> bool:
        """Whether there is a plan, and it fits its devices or nearly so."""
        return self.prediction is not None and self.prediction.fit.value != "does not fit"

    @property
    def rate(self) -> str:
        """Samples a second for people: three digits of few, none behind the point of many."""
        rate = self.samples_per_second
        if rate < 10.0:
            return f"{rate:.3g}"
        return f"{rate:,.1f}" if rate < 1000.0 else f"{rate:,.0f}"

    def to_json(self) -> dict[str, Any]:
        """Plain data with units in the names."""
        prediction = self.prediction
        numbers: dict[str, Any] = {}
        if prediction is not None:
            strategy = prediction.strategy
            numbers = {
                "plan": prediction.plan.to_json(),
                "step_time_s": prediction.step_time,
                "step_time_interval_s": prediction.interval.to_json(),
                "samples_per_s": self.samples_per_second,
                "speed_up": self.speed_up,
                "efficiency": self.efficiency,
                "peak_allocated_bytes": prediction.fullest.peak_allocated,
                "memory_fit": prediction.fit.value,
                "limited_by": self.limits,
                "tier": strategy.tier if strategy else "recurrence",
            }
        return {
            "family": self.name,
            "same_training_as_one_device": self.same_training,
            "reason": self.reason or None,
            **numbers,
        }


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Guide(Result):
    """All families of a scenario, the recommended one, and the reasons in words."""

    scenario: str
    rows: tuple[FamilyRow, ...]
    chosen: FamilyRow | None
    reasons: tuple[str, ...]

    @property
    def headline(self) -> str:
        """The family that is recommended, with its plan."""
        if self.chosen is None or self.chosen.prediction is None:
            return f"{self.scenario}: no family fits"
        return f"{self.scenario}: {self.chosen.name} ({self.chosen.prediction.plan.label()})"

    def to_json(self) -> dict[str, Any]:
        """The document that `parsim guide --json` prints."""
        return {
            "schema_version": SCHEMA_VERSION,
            "scenario": self.scenario,
            "recommended": self.chosen and self.chosen.name,
            "reasons": list(self.reasons),
            "families": [row.to_json() for row in self.rows],
        }

    def records(self) -> list[dict[str, Any]]:
        """A row for each family."""
        return [
            {name: value for name, value in row.to_json().items() if name != "plan"}
            for row in self.rows
        ]


CLOSE = 0.03
"""A simpler family that is at most so much slower is taken: predictions are not surer than that."""
NEAR_LINEAR = 0.9
"""An efficiency that is called near-linear."""
WORTH_MENTIONING = 1.1
"""By how much another training must be faster to be mentioned."""
SIMPLEST = (
    *("one device", "DDP", "ZeRO / FSDP", "parameter server", "DataParallel"),
    *("tensor", "pipeline", "branches", "layout", "hybrid"),
)
"""Families that train as one device does, the simplest to run first."""
GAINS = {
    "parameter server": "each node sends its gradients once and fetches the weights once",
    "tensor": "only devices that hold the same part of a layer reduce its gradients",
    "pipeline": "only devices of one stage reduce its gradients, and stages send activations alone",
    "branches": "branches of one layer run at once",
    "layout": "weights of large products are split over devices, whose activations then travel "
    "instead of gradients",
    "hybrid": "a model's states and gradients are divided over the devices that hold it together",
}
"""What a recommended family does better than plain replicas."""
SHARED = {
    1: "optimizer states are shared out to all devices",
    2: "gradients and optimizer states are shared out to all devices",
    3: "parameters, gradients and optimizer states are shared out to all devices",
}
"""What each stage of ZeRO does better than plain replicas."""
HARDER = {
    "DataParallel": "one process drives all devices, with Python's lock between its threads",
    "parameter server": "its servers are more to run",
    "tensor": "it changes the layers themselves",
    "pipeline": "it cuts the model into stages",
    "branches": "it places a model's branches by hand",
    "layout": "it lays every operation out",
    "hybrid": "it cuts the model in two ways",
}
"""Why families come late in that order, and are passed over where they are little faster."""


def choose(rows: Sequence[FamilyRow]) -> FamilyRow | None:
    """The fastest family of the same training that fits, or a simpler one that is as good as it.

    Of those that are as good one that is tight comes last.
    """
    able = [row for row in rows if row.same_training and row.fits]
    if not able:
        return None
    fastest = max(row.samples_per_second for row in able)
    close = [row for row in able if row.samples_per_second >= (1.0 - CLOSE) * fastest]
    return min(close, key=lambda row: (not _surely_fits(row), SIMPLEST.index(row.name)))


def _faster_otherwise(rows: Sequence[FamilyRow], chosen: FamilyRow) -> Iterator[str]:
    """The fastest family that changes the training, where it is worth mentioning."""
    faster = max(
        (row for row in rows if not row.same_training and row.fits),
        key=lambda row: row.samples_per_second,
        default=None,
    )
    if faster and faster.samples_per_second > WORTH_MENTIONING * chosen.samples_per_second:
        more = faster.samples_per_second / chosen.samples_per_second
        yield (
            f"{faster.name} would take {more:.2f} times as many samples a second, but trains "
            f"otherwise: what its samples are worth is not predicted"
        )


def reasons_for(job: Job, rows: Sequence[FamilyRow], chosen: FamilyRow | None) -> Iterator[str]:
    """The reasons in words, the most important first."""
    by_name = {row.name: row for row in rows}
    yield _one_device(by_name["one device"])
    if chosen is None:
        yield "no family fits: use more devices or a smaller model; parsim search has more plans"
        return
    stage = chosen.prediction.plan.zero_stage if chosen.prediction else 0
    if gain := GAINS.get(chosen.name) or (chosen.name == "ZeRO / FSDP" and SHARED.get(stage)):
        yield f"{chosen.name}: {gain}"
    yield from _tight(rows, chosen)
    yield from _passed_over(rows, chosen)
    yield from _network(by_name)
    yield from _against(by_name, chosen)
    yield from _faster_otherwise(rows, chosen)
    if len({system.device.id for system in job.cluster.systems}) > 1:
        yield "devices differ: without a barrier (asynchronous server) nobody waits for the slow"


def _one_device(alone: FamilyRow) -> str:
    if alone.prediction is None:
        return f"one device: {alone.reason}"
    if alone.fits:
        full = alone.prediction.plan.recompute.name == "FULL"
        how = " with full recomputation" if full else ""
        return f"the model fits one device{how}, so every device can hold all of it"
    return (
        "the model does not fit one device: its states or its layers must be shared out (speed-ups "
        "are over one device as if it did)"
    )


def _tight(rows: Sequence[FamilyRow], chosen: FamilyRow) -> Iterator[str]:
    """That the chosen family may not fit, and the fastest that does."""
    if chosen.prediction is None or chosen.prediction.fit is not Fit.TIGHT:
        return
    able = [row for row in rows if row.same_training and _surely_fits(row)]
    best = max(able, key=lambda row: row.samples_per_second, default=None)
    which = f"; of those that fit {best.name} is the fastest" if best else ""
    yield f"{chosen.name} is tight: it {RISK}{which}"


def _surely_fits(row: FamilyRow) -> bool:
    return row.prediction is not None and row.prediction.fit is Fit.FITS


def _passed_over(rows: Sequence[FamilyRow], chosen: FamilyRow) -> Iterator[str]:
    """Why families that are a little faster are not recommended."""
    for row in rows:
        more = row.samples_per_second / chosen.samples_per_second - 1.0
        if row.same_training and row.fits and more > 0.0:
            why = HARDER.get(row.name, "it is more to run")
            yield (
                f"{row.name} is predicted {100 * more:.1f} % faster, but {why}: predictions do not "
                f"tell {100 * CLOSE:.0f} % apart, and {chosen.name} is simpler to run"
            )


def _network(by_name: dict[str, FamilyRow]) -> Iterator[str]:
    """Whether all-reduce of gradients scales on this network."""
    ddp = by_name["DDP"]
    if ddp.prediction is None or not ddp.fits:
        return
    efficiency = ddp.efficiency
    if efficiency is None:
        return
    percent = f"{100 * efficiency:.0f} % of linear"
    if efficiency >= NEAR_LINEAR:
        yield f"DDP is near-linear here ({percent}): the network keeps up with the gradients"
    else:
        yield f"DDP reaches {percent}; limited by {ddp.limits}"


def _against(by_name: dict[str, FamilyRow], chosen: FamilyRow) -> Iterator[str]:
    """What the recommended family has over those that one would think of first."""
    for name in ("DDP", "parameter server", "tensor", "pipeline"):
        row = by_name[name]
        if row is chosen:
            continue
        if row.prediction is None:
            yield f"{name}: {row.reason}"
        elif not row.fits:
            yield f"{name} does not fit"
        elif row.samples_per_second < chosen.samples_per_second:
            share = row.samples_per_second / chosen.samples_per_second
            less = f"takes {100 * share:.0f} % of its samples a second"
            yield f"{name} {less}, limited by {row.limits}"
