"""Whether the choice of shapes beats chance: a learning curve over recorded measurements.

    python -m executor.calibration.learning --record FILE.csv   time every shape of a plan space
    python -m executor.calibration.learning --replay FILE.csv   measure k of them, predict the rest

A replay looks up k recorded times, by the choice and at random, fits constants and residuals as a
calibration does, and predicts the kernel time of every plan's step, which the record knows.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from executor.calibration.cases.samples import Kernels, Sample
from executor.calibration.cases.targets import Target
from executor.calibration.cases.workloads import TimedCase, Workload
from executor.calibration.choice.belief import Shape
from executor.calibration.choice.candidates import rounded, shape_of
from executor.calibration.choice.choose import choose
from executor.calibration.choice.spread import ShapeCandidate
from executor.calibration.fitting.constants import fit_device
from executor.calibration.fitting.deviations import points
from executor.calibration.timing.bench import Bench
from executor.calibration.timing.operators import Call
from executor.devices.machine import use_one_thread
from parsim.arrays import Array
from parsim.cluster.hardware import Device
from parsim.cost.step.plan_kernels import plan_kernels
from parsim.plan.precision import precision
from parsim.report.markdown import markdown_table
from parsim.scenario import Scenario, load_scenario

COUNTS = (5, 10, 20, 40, 80)
SEEDS = 20
DEGREES, MICROBATCHES = (1, 2, 4), (1, 2, 4)
FIELDS = ("kind", "shape", "seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Every shape that was timed, and the plans whose steps they make up."""

    times: dict[Shape, float]
    targets: tuple[Target, ...]
    kernels: Kernels
    device: Device

    @classmethod
    def of(cls, times: dict[Shape, float], scenario: Scenario) -> Record:
        """Times of the kernels of a scenario's model under every tensor degree and micro-batch."""
        plan = replace(scenario.fixed_plan(), pp=1)
        targets = tuple(
            Target(job=scenario.job, plan=split, workload=Workload(spec=scenario.spec, plan=split))
            for split in (
                replace(plan, tp=tp, microbatch_size=size)
                for tp in DEGREES
                for size in MICROBATCHES
            )
        )
        used = precision(plan.precision)
        kernels = Kernels(
            precision=used.compute, value=used.activation, software=scenario.job.software
        )
        return cls(times=times, targets=targets, kernels=kernels, device=scenario.job.device)

    @property
    def cases(self) -> dict[Shape, TimedCase]:
        """What was recorded and can be run by itself."""
        cases = (case for target in self.targets for case in target.cases())
        return {shape_of(case): case for case in cases if shape_of(case) in self.times}

    def counts(self, shapes: Sequence[Shape]) -> Array:
        """(P, N): how often each plan's step runs each recorded shape."""
        counts = np.zeros((len(self.targets), len(shapes)))
        column_of = {shape: i for i, shape in enumerate(shapes)}
        for row, target in enumerate(self.targets):
            for kernel in plan_kernels(target.job, target.plan):
                at = column_of.get((kernel.kind, rounded(kernel.where)))
                if at is not None:
                    counts[row, at] += kernel.count
        return counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Mean and largest |predicted / measured - 1| of the plans' kernel time.

    `inside` is how many of the plans are within their expected 80 % interval, `expected` that
    interval; nan for random shapes.
    """

    mean: float
    largest: float
    inside: float = float("nan")
    expected: float = float("nan")


def replay(record: Record, count: int, seed: int | None) -> Point:
    """Measure `count` shapes by the choice, or at random with a seed, and predict all plans."""
    cases = record.cases
    shapes = list(cases)
    counts = record.counts(shapes)
    modelled = np.array([_time(record, record.device, cases[x]) for x in shapes])
    weights = counts * modelled / (counts @ modelled)[:, None]
    if seed is None:
        candidates = [ShapeCandidate(shape=x, case=cases[x], cost=1.0) for x in shapes]
        choice = choose(candidates, weights, count + 0.5, cpu=True)
        rows = np.array(choice.measured)
    else:
        rows = np.random.default_rng(seed).permutation(len(shapes))[:count]
    errors = _errors(record, counts, [cases[shapes[i]] for i in rows])
    point = Point(mean=float(errors.mean()), largest=float(errors.max()))
    if seed is not None:
        return point
    inside = float((errors <= choice.expected_of_plans).mean())
    return replace(point, inside=inside, expected=choice.expected)


def _errors(record: Record, counts: Array, cases: Sequence[TimedCase]) -> Array:
    """Error of each plan's kernel time where these cases are measured."""
    device, every = _calibrated(record, cases), record.cases
    predicted = counts @ np.array([_time(record, device, case) for case in every.values()])
    true = counts @ np.array([record.times[shape] for shape in every])
    return np.asarray(np.abs(predicted / true - 1.0))


def _calibrated(record: Record, cases: Sequence[TimedCase]) -> Device:
    samples = [
        Sample(kind=case.kind, shape=case.shape, seconds=record.times[shape_of(case)])
        for case in cases
    ]
    device = fit_device(record.device, samples, record.kernels)
    modelled = record.kernels.times(device, samples)
    return replace(device, residuals=points(samples, modelled.tolist()))


def _time(record: Record, device: Device, case: TimedCase) -> float:
    return record.kernels.time(device, case.kind, case.shape)


def read(path: Path) -> dict[Shape, float]:
    """Times of a record's file."""
    lines = (line for line in path.read_text(encoding="utf-8").splitlines() if line[:1] != "#")
    return {
        (row["kind"], tuple(float(x) for x in row["shape"].split())): float(row["seconds"])
        for row in csv.DictReader(lines)
    }


class _Clock(Bench):
    """A bench that counts the seconds its thread really ran: other load stretches only the others.

    A long kernel on a shared machine is always interrupted, so the least time would hide nothing.
    """

    def elapsed(self, work: Call, inner: int) -> float:
        began = time.thread_time()
        for _ in range(inner):
            work()
        return (time.thread_time() - began) / inner


def record_times(path: Path, scenario: Scenario) -> None:
    """Time every shape on one thread of this machine's CPU and write the file."""
    use_one_thread()
    record, bench = Record.of({}, scenario), _Clock(torch.device("cpu"), "fp32")
    with path.open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(FIELDS)
        distinct = {case.key: case for target in record.targets for case in target.cases()}
        for case in distinct.values():
            kind, where = shape_of(case)
            seconds = bench.sample(case, 0.1).seconds
            writer.writerow([kind, " ".join(f"{x:.9g}" for x in where), f"{seconds:.6g}"])


def table(record: Record) -> str:
    """The learning curve as Markdown."""
    columns = "shapes | choice: mean / largest % | expected ± % | inside | random: mean / largest %"
    rows = []
    for count in COUNTS:
        point = replay(record, count, None)
        others = [replay(record, count, seed) for seed in range(SEEDS)]
        mean, largest = (
            float(np.mean([getattr(x, name) for x in others])) for name in ("mean", "largest")
        )
        cells = (
            f"{100 * point.mean:.1f} / {100 * point.largest:.1f}",
            f"{100 * point.expected:.1f}",
            f"{100 * point.inside:.0f} %",
            f"{100 * mean:.1f} / {100 * largest:.1f}",
        )
        rows.append((count, *cells))
    return "\n".join(markdown_table(columns, rows, words=())) + "\n"


def main() -> None:
    """Record, or replay."""
    parser = argparse.ArgumentParser(prog="python -m executor.calibration.learning")
    parser.add_argument("--record", type=Path, help="time every shape and write the file")
    parser.add_argument("--replay", type=Path, help="print the learning curve of a file")
    parser.add_argument("--scenario", type=Path, default="scenarios/gpt2-small-cpu.yaml")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    scenario = load_scenario(options.scenario, dict(pair.split("=", 1) for pair in options.set))
    if options.record:
        record_times(options.record, scenario)
    if options.replay:
        sys.stdout.write(table(Record.of(read(options.replay), scenario)))


if __name__ == "__main__":
    main()
