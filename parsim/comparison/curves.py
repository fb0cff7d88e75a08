"""Losses of several runs against seconds and against samples: what a strategy's samples are worth.

`parsim run` leaves them in `run.json`: the loss of every worker's round with the moment of its end
for a plan with a strategy, the loss and the median length of every step for DDP. How old gradients
are and how many samples a second there are can be simulated; this cannot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from parsim.errors import InputError
from parsim.files import read_json
from parsim.results import Result

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The loss of one run: after how many seconds and samples it was how high.

    Each value is the mean over the last `workers` rounds, one of each worker.
    """

    name: str
    workers: int
    seconds: tuple[float, ...]
    samples: tuple[float, ...]
    loss: tuple[float, ...]

    @property
    def rate(self) -> float:
        """Samples a second."""
        return self.samples[-1] / self.seconds[-1]

    def seconds_to(self, loss: float) -> float | None:
        """When the loss was first that low; None: never."""
        return next((t for t, x in zip(self.seconds, self.loss, strict=True) if x <= loss), None)

    def samples_to(self, loss: float) -> float | None:
        """After how many samples the loss was first that low; None: never."""
        return next((n for n, x in zip(self.samples, self.loss, strict=True) if x <= loss), None)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CurveComparison(Result):
    """Curves of several runs, and the lowest loss that all of them reached."""

    curves: tuple[Curve, ...]

    @property
    def reached(self) -> float:
        """The lowest loss that every run came to."""
        return max(min(curve.loss) for curve in self.curves)

    @property
    def headline(self) -> str:
        """Who was first at the loss that all reached."""
        times = {curve.name: curve.seconds_to(self.reached) or 0.0 for curve in self.curves}
        first = min(times, key=times.__getitem__)
        return f"{first} is first at a loss of {self.reached:.4f}, after {times[first]:.2f} s"

    def records(self) -> list[dict[str, Any]]:
        """A row for each run."""
        return [
            {
                "run": curve.name,
                "workers": curve.workers,
                "samples_per_s": curve.rate,
                "last_loss": curve.loss[-1],
                "loss_that_all_reached": self.reached,
                "seconds_to_it_s": curve.seconds_to(self.reached),
                "samples_to_it": curve.samples_to(self.reached),
            }
            for curve in self.curves
        ]

    def to_json(self) -> dict[str, Any]:
        """The document that `parsim compare RUN.json ... --json` prints."""
        return {"schema_version": SCHEMA_VERSION, "runs": self.records()}


def is_run(path: Path) -> bool:
    """Whether a file is the `run.json` of a run."""
    if path.suffix != ".json":
        return False
    try:
        document = read_json(path)
    except InputError:
        return False
    return isinstance(document, dict) and {"plan", "measured", "verify"} <= document.keys()


def compare_curves(paths: Sequence[Path]) -> CurveComparison:
    """Read the losses of several runs.

    Raises:
        InputError: a file is no run, or has no loss that is a number.
    """
    for path in paths:
        if not is_run(path):
            raise InputError(
                f"{path}: is no run.json of `parsim run`; all files must be of one kind"
            )
    names = _names(paths)
    return CurveComparison(
        curves=tuple(curve_of(read_json(p), name) for p, name in zip(paths, names, strict=True))
    )


def _names(paths: Sequence[Path]) -> list[str]:
    """The strategy or schedule of each run, with the folder where two have the same one."""
    plain = [_strategy(read_json(path)) for path in paths]
    return [
        name if plain.count(name) == 1 else f"{name} ({path.parent.name})"
        for name, path in zip(plain, paths, strict=True)
    ]


def _strategy(document: Mapping[str, Any]) -> str:
    if "strategy" in document:
        return str(document["strategy"]["name"])
    plan = document["plan"]
    return str(plan["schedule"]) if plan["pp"] > 1 else "ddp"


def curve_of(document: Mapping[str, Any], name: str) -> Curve:
    """The curve of a run's document.

    Raises:
        InputError: no step was timed, or no loss is a number.
    """
    plan = document["plan"]
    workers = int(plan["dp"])
    batch = plan["microbatch_size"] * plan["num_microbatches"] * workers
    points = _points(document, batch, workers)
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
    )


def _points(
    document: Mapping[str, Any], batch: int, workers: int
) -> list[tuple[float, float, Any]]:
    """(seconds, samples, loss) in order of time."""
    if "strategy" in document:
        curve = document["strategy"]["curve"]
        return [(point["seconds"], point["samples"], point["loss"]) for point in curve]
    median = document["measured"]["step_time_s"]["median"]
    losses = document["measured"]["loss"]
    if median is None:
        return []
    return [((i + 1) * median, float((i + 1) * batch), loss) for i, loss in enumerate(losses)]
