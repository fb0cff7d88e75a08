"""Reads the losses of a run from its `run.json`: of its steps, or of its evaluations.

The document has the loss of every worker's round with the moment of its end for a plan with a
strategy, the loss and the seconds of every step for DDP.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean
from typing import Any

from parsim.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The loss of one run: after how many seconds and samples it was how high.

    Each value is the mean over the last `workers` rounds, one of each worker. `rate` is that of the
    timed steps in samples a second, as the run says it; None where it has no step time. The loss
    is a mean over samples where they are no texts, else over tokens.
    """

    name: str
    workers: int
    seconds: tuple[float, ...]
    samples: tuple[float, ...]
    loss: tuple[float, ...]
    rate: float | None
    of_samples: bool = False

    def seconds_to(self, loss: float) -> float | None:
        """When the loss was first that low; None: never."""
        return next((t for t, x in zip(self.seconds, self.loss, strict=True) if x <= loss), None)

    def samples_to(self, loss: float) -> float | None:
        """After how many samples the loss was first that low; None: never."""
        return next((n for n, x in zip(self.samples, self.loss, strict=True) if x <= loss), None)


def curve_of(document: Mapping[str, Any], name: str) -> Curve:
    """The curve of a run's document.

    Raises:
        InputError: no step was timed, or no loss is a number.
    """
    plan = document["plan"]
    workers = int(plan["dp"])
    points = _points(document)
    known = [point for point in points if point[2] is not None]
    if not known:
        raise InputError(f"{name}: the run has no loss that is a number, or no timed step")
    window = document["strategy"].get("workers", workers) if "strategy" in document else 1
    losses = [loss for _, _, loss in known]
    means = [fmean(losses[max(0, i + 1 - window) : i + 1]) for i in range(len(losses))]
    return Curve(
        name=name,
        workers=workers,
        seconds=tuple(point[0] for point in known),
        samples=tuple(point[1] for point in known),
        loss=tuple(means),
        rate=_rate(document),
        of_samples=document["measured"].get("tokens_of_sample") == 1,
    )


def evaluations_of(document: Mapping[str, Any], name: str) -> Curve:
    """The losses of a run's evaluations.

    Raises:
        InputError: no loss is a number.
    """
    entries = document["measured"]["evaluations"]
    known = [entry for entry in entries if entry["loss"] is not None]
    if not known:
        raise InputError(f"{name}: no evaluation of the run has a loss that is a number")
    ends, batch = _ends(document), _batch(document["plan"])
    taken = [entry["steps"] for entry in known]
    return Curve(
        name=name,
        workers=int(document["plan"]["dp"]),
        seconds=tuple(
            entry["seconds"] if "seconds" in entry else ends[step - 1]
            for entry, step in zip(known, taken, strict=True)
        ),
        samples=tuple(
            entry.get("samples", float(step * batch))
            for entry, step in zip(known, taken, strict=True)
        ),
        loss=tuple(entry["loss"] for entry in known),
        rate=_rate(document),
        of_samples=document["measured"].get("tokens_of_sample") == 1,
    )


def _batch(plan: Mapping[str, Any]) -> int:
    """Samples of a step."""
    counts = plan.get("replica_microbatches") or [plan["num_microbatches"]] * int(plan["dp"])
    return int(plan["microbatch_size"] * sum(counts))


def _rate(document: Mapping[str, Any]) -> float | None:
    """Samples a second behind the warm-up: of DDP by the median step, as its tokens a second."""
    measured = document["measured"]
    if "samples_per_s" in measured:
        rate: float | None = measured["samples_per_s"]
        return rate
    median = measured["step_time_s"]["median"]
    return None if median is None else _batch(document["plan"]) / median


def _ends(document: Mapping[str, Any]) -> list[float]:
    """When each step ended: by its own seconds, where the run has those of all, else the median."""
    measured = document["measured"]
    count, taken = len(measured["loss"]), measured.get("step_seconds", ())
    if len(taken) == count:
        return list(accumulate(taken))
    median = measured["step_time_s"]["median"]
    return [] if median is None else [(i + 1) * median for i in range(count)]


def _points(document: Mapping[str, Any]) -> list[tuple[float, float, Any]]:
    """(seconds, samples, loss) in order of time."""
    if "strategy" in document:
        curve = document["strategy"]["curve"]
        return [(point["seconds"], point["samples"], point["loss"]) for point in curve]
    batch, losses = _batch(document["plan"]), document["measured"]["loss"]
    pairs = zip(_ends(document), losses, strict=False)  # no ends: none of them is timed
    return [(end, float((i + 1) * batch), loss) for i, (end, loss) in enumerate(pairs)]
