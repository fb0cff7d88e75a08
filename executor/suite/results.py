"""What the cases measured against what was predicted, read from the folder of a suite.

Everything is read from files, so that a suite that was cut short, or one of last week, can be
reported too. Errors are (predicted - measured) / measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from executor.suite.predict import kinds, quantities
from parsim.errors import InputError
from parsim.files import read_json
from parsim.timelines.reader import load_timeline
from parsim.validation import ranking


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One predicted and one measured amount."""

    predicted: float
    measured: float

    @property
    def error(self) -> float | None:
        """(predicted - measured) / measured; None where nothing is measured."""
        return self.predicted / self.measured - 1.0 if self.measured else None

    def to_json(self) -> dict[str, Any]:
        """Both, and the signed error."""
        return {"predicted": self.predicted, "measured": self.measured, "error": self.error}


STATED = ("name", "family", "model", "plan", "precision")
"""What is reported of a case as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One case that ran. Seconds and bytes; `mad` is the median absolute deviation of the steps.

    `interval` is to hold the median step in 80 % of cases; None where it was not predicted.
    `counted` says whether it takes part in the figures of accuracy; `label` why not. `core_pace` is
    how many times as long as when they were calibrated cores took, None where that is not known.
    """

    name: str
    family: str
    model: str
    plan: str
    precision: str
    step_time: Pair
    least: float
    mad: float
    steps: int
    peak: Pair
    kinds: Mapping[str, Pair]
    tokens_per_s: float
    mfu: float
    loss: tuple[float, float]
    interval: tuple[float, float] | None = None
    core_pace: float | None = None
    label: str = ""

    @property
    def counted(self) -> bool:
        """Whether its speed is that of its plan."""
        return not self.label

    @property
    def error_of_least(self) -> float:
        """Against the fastest step: what other load on the machine adds is never negative."""
        return self.step_time.predicted / self.least - 1.0

    @property
    def inside(self) -> bool | None:
        """Whether the measured step lies in its interval; None where it has none."""
        if self.interval is None:
            return None
        low, high = self.interval
        return low <= self.step_time.measured <= high

    def to_json(self) -> dict[str, Any]:
        """One entry of `cases` in `report.json`."""
        return {
            **{name: getattr(self, name) for name in STATED},
            "counted": self.counted,
            "label": self.label,
            "step_time_s": {
                **self.step_time.to_json(),
                "min": self.least,
                "mad": self.mad,
                "n": self.steps,
                "error_of_min": self.error_of_least,
                "interval": list(self.interval) if self.interval else None,
                "inside": self.inside,
            },
            "peak_allocated_bytes": self.peak.to_json(),
            "kinds_s": {name: pair.to_json() for name, pair in self.kinds.items()},
            "tokens_per_s": self.tokens_per_s,
            "mfu": self.mfu,
            "core_pace": self.core_pace,
            "loss": list(self.loss),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A suite's folder: its progress, calibration and predictions as written, and its results."""

    progress: Mapping[str, Any]
    calibration: Mapping[str, Any]
    predictions: Mapping[str, Any]
    results: tuple[Result, ...]

    @property
    def counted(self) -> tuple[Result, ...]:
        """The results that say how accurate predictions are."""
        return tuple(result for result in self.results if result.counted)

    def left_out(self, status: str) -> dict[str, str]:
        """Reasons by case: of those that were "skipped", or that "failed"."""
        cases = self.progress["cases"]
        return {name: case["reason"] for name, case in cases.items() if case["status"] == status}

    @property
    def predicted_first(self) -> bool:
        """Whether the predictions were on disk before any case began."""
        began = [case["began_at"] for case in self.progress["cases"].values() if "began_at" in case]
        return all(self.predictions["written_at"] < moment for moment in began)


def read(out: Path) -> Outcome:
    """Read the folder of a suite.

    Raises:
        InputError: it is none, or it was cut before the predictions.
    """
    progress = _document(out, "progress.json")
    predictions = _document(out, "predictions.json")
    return Outcome(
        progress=progress,
        calibration=_document(out, "calibration.json"),
        predictions=predictions,
        results=tuple(
            _result(out / name, case, predictions["cases"][name])
            for name, case in progress["cases"].items()
            if case["status"] == "done"
        ),
    )


def _document(out: Path, name: str) -> dict[str, Any]:
    try:
        document: dict[str, Any] = read_json(out / name)
    except InputError as error:
        raise InputError(f"{error}; run the suite again") from None
    return document


def _result(folder: Path, progress: Mapping[str, Any], predicted: Mapping[str, Any]) -> Result:
    run = _document(folder, "run.json")
    measured, step = run["measured"], run["measured"]["step_time_s"]
    theirs = kinds(quantities(load_timeline(folder / "timeline.json")))
    ours, loss = predicted["kinds_s"], measured["loss"]
    return Result(
        name=folder.name,
        family=progress["family"],
        model=predicted["model"],
        plan=predicted["plan"],
        precision=run["plan"]["precision"],
        step_time=Pair(predicted=predicted["step_time_s"], measured=step["median"]),
        least=step["min"],
        mad=step["mad"],
        steps=step["n"],
        peak=Pair(
            predicted=max(predicted["peak_allocated_bytes"]),
            measured=max(measured["peak_allocated_bytes"]),
        ),
        kinds={x: Pair(predicted=ours[x], measured=theirs[x]) for x in ours if x in theirs},
        tokens_per_s=measured["tokens_per_s"],
        mfu=measured["mfu"],
        core_pace=measured.get("core_pace", {}).get("median"),
        loss=(loss[0], loss[-1]),
        interval=tuple(between) if (between := predicted.get("step_time_interval_s")) else None,
        label=progress.get("label", ""),
    )


Amount = Callable[[Result], Pair | None]
"""Takes the compared amount out of a result."""


def summary(results: Sequence[Result], amount: Amount) -> dict[str, Any] | None:
    """Over all results that have an error: how many, and the errors' size and bias."""
    pairs = [pair for result in results if (pair := amount(result)) is not None]
    errors = [pair.error for pair in pairs if pair.error is not None]
    if not errors:
        return None
    return {
        "n": len(errors),
        "median_abs": median(map(abs, errors)),
        "max_abs": max(map(abs, errors)),
        "bias": fmean(errors),
    }


def covered(results: Sequence[Result]) -> dict[str, int] | None:
    """How many measured steps lie in their intervals, of how many; None where none has one."""
    judged = [result.inside for result in results if result.inside is not None]
    return {"inside": sum(judged), "n": len(judged)} if judged else None


def spearman(results: Sequence[Result]) -> float | None:
    """Rank correlation of step times; None for fewer than three, or where all took as long."""
    pairs = [result.step_time for result in results]
    if len(pairs) < 3:
        return None
    return ranking.spearman([(pair.predicted, pair.measured) for pair in pairs])
