"""Losses of several runs against seconds and against samples: what a strategy's samples are worth.

`parsim run` leaves them in `run.json`: the loss of every worker's round with the moment of its end
for a plan with a strategy, the loss and the seconds of every step for DDP. Where all runs were
evaluated on the way, their evaluations are compared: data that none of them trained on. How old
gradients are and how many samples a second there are can be simulated; this cannot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
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

    Each value is the mean over the last `workers` rounds, one of each worker. `rate` is that of the
    timed steps in samples a second, as the run says it; None where it has no step time.
    """

    name: str
    workers: int
    seconds: tuple[float, ...]
    samples: tuple[float, ...]
    loss: tuple[float, ...]
    rate: float | None

    def seconds_to(self, loss: float) -> float | None:
        """When the loss was first that low; None: never."""
        return next((t for t, x in zip(self.seconds, self.loss, strict=True) if x <= loss), None)

    def samples_to(self, loss: float) -> float | None:
        """After how many samples the loss was first that low; None: never."""
        return next((n for n, x in zip(self.samples, self.loss, strict=True) if x <= loss), None)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CurveComparison(Result):
    """Curves of several runs, and the lowest loss that all of them reached.

    `evaluated`: the losses are of data that no run trained on.
    """

    curves: tuple[Curve, ...]
    evaluated: bool = False
    notes: tuple[str, ...] = ()

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
        what = "evaluation" if self.evaluated else "training"
        return {"schema_version": SCHEMA_VERSION, "loss_of": what, "runs": self.records()}


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
    documents, names = [read_json(path) for path in paths], _names(paths)
    evaluated = all(len(document["measured"].get("evaluations", ())) > 1 for document in documents)
    make = evaluations_of if evaluated else curve_of
    curves = tuple(make(document, name) for document, name in zip(documents, names, strict=True))
    return CurveComparison(
        curves=curves, evaluated=evaluated, notes=tuple(_notes(documents, names))
    )


def _notes(documents: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Iterator[str]:
    """What makes losses of runs no measure of one another."""
    models: dict[str, str] = {}
    for name, document in zip(names, documents, strict=True):
        models.setdefault(_model(document), name)
    models.pop("", None)
    if len(models) > 1:
        first, other = list(models.values())[:2]
        yield (
            f"{first} and {other} are runs of different models, whose losses say nothing of one "
            f"another"
        )


def _model(document: Mapping[str, Any]) -> str:
    """The model block that a run's scenario has, and what was set in it; empty if not known."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    scenario = document.get("meta", {}).get("scenario", {})
    try:
        block = YAML(typ="safe").load(scenario.get("text") or "{}")["model"]
    except (KeyError, TypeError, YAMLError):
        return ""
    options = [text for text in scenario.get("set", ()) if str(text).startswith("model.")]
    return repr((block, options))


def _names(paths: Sequence[Path]) -> list[str]:
    """The strategy or schedule of each run, with the folder where two have the same one."""
    plain = [_strategy(read_json(path)) for path in paths]
    return [
        name if plain.count(name) == 1 else f"{name} ({path.parent.name})"
        for name, path in zip(plain, paths, strict=True)
    ]


def _strategy(document: Mapping[str, Any]) -> str:
    plan = document["plan"]
    if plan.get("strategy"):
        return str(plan["strategy"]["name"])
    return str(plan["schedule"]) if plan.get("pp", 1) > 1 else "ddp"


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
