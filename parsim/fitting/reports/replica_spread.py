"""Writes reports/replica-spread.md: how far a model's scaling is off when its rows are not fitted.

    python -m parsim.fitting.reports.replica_spread REPORT

The stack `pytorch-ddp` has one number a precision for how much replicas with images differ, fitted
to the 18 ratios of eight devices to one of the shipped table. Here each model's ratios are
predicted with the number that those of the other models give.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import numpy as np

from parsim.cost.job import Job
from parsim.cost.software import software
from parsim.fitting.reports.network import table
from parsim.report.writing import write_text
from parsim.sim import simulate
from parsim.units import percent
from parsim.validation.tables import RowSkipped, read_rows, shipped_tables
from parsim.validation.vision.measured_samples import parse_samples
from parsim.validation.vision.samples_case import case_of

STACK = "pytorch-ddp"
GRID = np.arange(0.0, 0.3001, 0.001)
"""Values of the spread that are tried."""
HEAD = ("model", "precision", "fitted to the others", "errors of its ratios")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """Throughput of eight devices over one: measured, and predicted for every value of `GRID`."""

    model: str
    device: str
    compute: str
    measured: float
    predicted: tuple[float, ...]

    def error(self, index: int) -> float:
        """(predicted - measured) / measured with one value of the grid."""
        return self.predicted[index] / self.measured - 1.0


def ratios() -> list[Ratio]:
    """All pairs of a publisher's runs on one device and eight, of the same model and precision.

    A step grows in proportion to the spread, so that two predictions give all of them.
    """
    steps: dict[tuple[str, ...], dict[int, tuple[float, float, float]]] = {}
    for path in shipped_tables("vision"):
        for row in read_rows(path, lambda _path, _columns: None):
            try:
                run = parse_samples(row)
                case = case_of(run)
            except RowSkipped:
                continue
            if case.job.software.id != STACK or run.step_time is None:
                continue
            none, some = (
                simulate(_spread_by(case.job, spread), case.plan).step_time
                for spread in (0.0, GRID[-1])
            )
            key = (run.model, run.gpu_type, run.precision, run.publisher, run.layout)
            steps.setdefault(key, {})[case.plan.dp] = (run.step_time, none, some)
    return [_ratio(key, both) for key, both in steps.items() if set(both) == {1, 8}]


def _spread_by(job: Job, spread: float) -> Job:
    """The job under a stack with another spread of the replicas."""
    return replace(job, software=replace(job.software, replica_spread={"default": spread}))


def _ratio(key: tuple[str, ...], both: dict[int, tuple[float, float, float]]) -> Ratio:
    model, device, precision = key[:3]
    (alone, none_1, some_1), (eight, none_8, some_8) = both[1], both[8]
    shares = GRID / GRID[-1]
    first, many = none_1 + shares * (some_1 - none_1), none_8 + shares * (some_8 - none_8)
    return Ratio(
        model=model,
        device=device,
        compute="fp16" if precision.startswith("fp16") else "default",
        # eight devices do eight times the samples in a step
        measured=8.0 * alone / eight,
        predicted=tuple((8.0 * first / many).tolist()),
    )


def fitted(of: Sequence[Ratio]) -> int:
    """The place in the grid with the least mean absolute error."""
    means = [fmean(abs(ratio.error(index)) for ratio in of) for index in range(len(GRID))]
    return int(np.argmin(means))


Fold = tuple[str, str, int, list[float]]
"""(model, precision, place fitted to the other models, signed errors of this one's ratios)."""


def left_out(every: Sequence[Ratio]) -> Iterator[Fold]:
    """Each model and precision with what the other models say of it."""
    for compute in ("default", "fp16"):
        same = [ratio for ratio in every if ratio.compute == compute]
        for model in dict.fromkeys(ratio.model for ratio in same):
            index = fitted([ratio for ratio in same if ratio.model != model])
            errors = [ratio.error(index) for ratio in same if ratio.model == model]
            yield model, compute, index, errors


def page() -> str:
    """The page as Markdown."""
    every = ratios()
    folds = list(left_out(every))
    spread = {precision: _spread(precision, images=True) for precision in ("default", "fp16")}
    lines = [
        *_method(spread),
        table(HEAD, map(_fold_row, folds), right=(2,)),
        "",
        *_means(every, folds, spread),
        "",
        "One stack and one publisher's machines: that other frameworks scale so is not shown.",
        f"Replicas with tokens have {_spread('fp16', images=False):g} in any "
        "precision, fitted to BERT-large's ratios (`parsim/cost/software.yaml`).",
    ]
    return "\n".join(lines) + "\n"


def _spread(precision: str, *, images: bool) -> float:
    """What the stack ships for a precision."""
    return software(STACK).spread_of_replicas(precision, images=images)


def _method(spread: Mapping[str, float]) -> list[str]:
    """The heading, and what each row of the table holds."""
    return [
        "# Scaling from one device to eight, with each model left out of the fit",
        "",
        "Written by `python -m parsim.fitting.reports.replica_spread reports/replica-spread.md`.",
        "`replica_spread` of the stack `pytorch-ddp` is the relative standard deviation of a step",
        f"between replicas; of images: {spread['default']:g} in fp32 and tf32, "
        f"{spread['fp16']:g} in AMP.",
        "Each row has the value fitted to the ratios of the other models; the errors are of those",
        "of the model itself (eight devices over one, predicted / measured - 1).",
        "",
    ]


def _fold_row(fold: Fold) -> tuple[str, str, str, str]:
    """One model's row of the table."""
    model, compute, index, errors = fold
    return (
        model,
        "AMP" if compute == "fp16" else "fp32, tf32",
        f"{GRID[index]:.3f}",
        ", ".join(percent(error, signed=True) for error in errors),
    )


def _means(
    every: Sequence[Ratio], folds: Sequence[Fold], spread: Mapping[str, float]
) -> Iterator[str]:
    """Mean absolute errors with each model left out, with the shipped numbers, and with none."""
    apart = fmean(abs(error) for *_, errors in folds for error in errors)
    nearest = {name: int(np.abs(GRID - value).argmin()) for name, value in spread.items()}
    shipped = fmean(abs(ratio.error(nearest[ratio.compute])) for ratio in every)
    without = fmean(abs(ratio.error(0)) for ratio in every)
    yield f"- mean absolute error of {len(every)} ratios, each model left out: {percent(apart)}"
    yield f"- with the shipped numbers, which are fitted to all of them: {percent(shipped)}"
    yield f"- without any spread between replicas: {percent(without)}"


if __name__ == "__main__":
    write_text(Path(sys.argv[1]), page())
