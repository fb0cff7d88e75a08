"""Losses of several runs against seconds and against samples: what a strategy's samples are worth.

`parsim run` leaves them in `run.json`: the loss of every worker's round with the moment of its end
for a plan with a strategy, the loss and the seconds of every step for DDP. Where all runs were
evaluated on the way, their evaluations are compared: data that none of them trained on. How old
gradients are and how many samples a second there are can be simulated; this cannot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from parsim.comparison.run_curves import Curve, curve_of, evaluations_of
from parsim.errors import InputError
from parsim.files import read_json
from parsim.results import Result

SCHEMA_VERSION = 1


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
    def per(self) -> Literal["token", "sample"]:
        """What the losses are means over."""
        return "sample" if all(curve.of_samples for curve in self.curves) else "token"

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
