"""Fit one set of constants of a system and its software to measured steps, and say what it costs.

Minimises the mean Huber loss of log(predicted / measured) over the sources, each source counting
the same, plus log-normal priors at textbook values, by damped Gauss-Newton with numeric
derivatives. Every source is also left out once, so that the report shows errors on rows the
constants have not seen. The catalog's values are such a fit, rounded; nothing here runs when
parsim predicts.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from parsim.cost.job import Job
from parsim.sim import simulate
from parsim.validation.build import Case, build_case
from parsim.validation.compare import shipped_tables
from parsim.validation.schema import RowSkipped, parse_row, read_table

Array = NDArray[np.float64]

HUBER = 0.05
"""Errors beyond 5 % count linearly: a few bad rows must not steer the constants."""
PRIOR_WEIGHT = 0.003
ROUNDS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A constant with its textbook value and the spread of its logarithm."""

    name: str
    textbook: float
    spread: float


A100 = (
    Constant(name="gemm_efficiency", textbook=0.84, spread=0.08),
    Constant(name="memory_efficiency", textbook=0.78, spread=0.08),
    Constant(name="kernel_latency", textbook=5e-6, spread=0.4),
    Constant(name="nvlink_efficiency", textbook=0.82, spread=0.08),
    Constant(name="network_efficiency", textbook=0.95, spread=0.1),
    Constant(name="call_overhead", textbook=20e-6, spread=0.5),
    Constant(name="straggler", textbook=0.013, spread=0.5),
    Constant(name="traffic", textbook=1.3, spread=0.15),
    Constant(name="launch_cost", textbook=40e-6, spread=0.4),
    Constant(name="microbatch_overhead", textbook=2e-3, spread=0.7),
)

A100_SOURCES = {
    "megatron_sc21_table1_weak_scaling": 1,
    "korthikanti2022_step_time_22b_530b": 1,
    "vtrain_multi_node_3p6b_18p4b": 1,
    "vtrain_single_node_layers_12_20": 12,
}
"""Tables of the fit; of vTrain's 720 single-node rows (composed from 32 layer times) each 12th."""


def with_constants(job: Job, values: Mapping[str, float]) -> Job:
    """The job with its system's and software's constants replaced."""
    system, software = job.system, job.software
    device = replace(
        system.device,
        gemm_efficiency=values["gemm_efficiency"],
        memory_efficiency=values["memory_efficiency"],
        kernel_latency=values["kernel_latency"],
    )
    network = system.network and replace(system.network, efficiency=values["network_efficiency"])
    system = replace(
        system,
        device=device,
        intra=replace(system.intra, efficiency=values["nvlink_efficiency"]),
        network=network,
        call_overhead=values["call_overhead"],
        straggler=values["straggler"],
    )
    software = replace(
        software,
        traffic=values["traffic"],
        launch_cost=values["launch_cost"],
        microbatch_overhead=values["microbatch_overhead"],
    )
    return replace(job, cluster=replace(job.cluster, system=system), software=software)


def load_cases(sources: Mapping[str, int]) -> dict[str, list[Case]]:
    """Usable rows of the shipped tables, every n-th row of each."""
    cases: dict[str, list[Case]] = {}
    for path in shipped_tables():
        if path.stem not in sources:
            continue
        for row in read_table(path)[:: sources[path.stem]]:
            try:
                run = parse_row(row)
                if run.step_time:
                    cases.setdefault(path.stem, []).append(build_case(run))
            except RowSkipped:
                continue
    return cases


def log_errors(cases: Sequence[Case], values: Mapping[str, float]) -> Array:
    """log(predicted / measured) per case."""
    ratios = [
        simulate(with_constants(case.job, values), case.plan).step_time / (case.run.step_time or 1)
        for case in cases
    ]
    return np.asarray(np.log(np.array(ratios)), dtype=np.float64)


def fit(
    cases: Mapping[str, Sequence[Case]], constants: Sequence[Constant]
) -> tuple[dict[str, float], float]:
    """Fitted values and the final objective."""
    spread = np.array([c.spread for c in constants])

    def values(move: Array) -> dict[str, float]:
        return {c.name: c.textbook * float(np.exp(d)) for c, d in zip(constants, move, strict=True)}

    def residuals(move: Array) -> tuple[Array, Array]:
        parts = [log_errors(rows, values(move)) for rows in cases.values()]
        weights = np.concatenate([np.full(len(part), 1.0 / len(part)) for part in parts])
        return np.concatenate(parts), weights

    move = np.zeros(len(constants))
    error, weight = residuals(move)
    best = _objective(error, weight, move, spread)
    damping = 1e-3
    for _ in range(ROUNDS):
        jacobian = _jacobian(residuals, move, error)
        robust = weight * np.minimum(1.0, HUBER / np.maximum(np.abs(error), 1e-9)) / HUBER
        normal = jacobian.T @ (robust[:, None] * jacobian) + np.diag(2 * PRIOR_WEIGHT / spread**2)
        slope = jacobian.T @ (robust * error) + 2 * PRIOR_WEIGHT * move / spread**2
        step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), -slope)
        tried, tried_weight = residuals(move + step)
        loss = _objective(tried, tried_weight, move + step, spread)
        if loss < best:
            move, error, best, damping = move + step, tried, loss, damping / 3
        else:
            damping *= 10
    return values(move), best


def _objective(error: Array, weight: Array, move: Array, spread: Array) -> float:
    size = np.abs(error)
    huber = np.where(size < HUBER, error**2 / (2 * HUBER), size - HUBER / 2)
    return float(np.sum(weight * huber) + PRIOR_WEIGHT * np.sum((move / spread) ** 2))


def _jacobian(residuals: object, move: Array, error: Array) -> Array:
    columns = []
    for i in range(len(move)):
        shifted = move.copy()
        shifted[i] += 0.02
        columns.append((residuals(shifted)[0] - error) / 0.02)  # type: ignore[operator]
    return np.stack(columns, axis=1)


def report(constants: Sequence[Constant], sources: Mapping[str, int]) -> str:
    """Markdown: the constants, and errors of every source in the fit and left out of it."""
    cases = load_cases(sources)
    fitted, _ = fit(cases, constants)
    lines = [
        "# Fit of the A100 constants",
        "",
        "Written by `make fit` (`python -m parsim.validation.fit reports/fit.md`); do not edit.",
        "The catalog holds the fitted column, rounded. Method:",
        " ".join((__doc__ or "").split()),
        "",
        "| constant | textbook | fitted |",
        "|---|--:|--:|",
    ]
    lines += [f"| {c.name} | {c.textbook:.4g} | {fitted[c.name]:.4g} |" for c in constants]
    lines += [
        "",
        "Mean |error| / largest |error| / bias, percent; left out: fitted to the other sources.",
        "",
        "| source | rows | textbook, nothing fitted | all sources fitted | this one left out |",
        "|---|--:|--:|--:|--:|",
    ]
    start = {c.name: c.textbook for c in constants}
    for name, rows in cases.items():
        others = {key: value for key, value in cases.items() if key != name}
        cells = [start, fitted, fit(others, constants)[0]]
        told = " | ".join(_told(log_errors(rows, values)) for values in cells)
        lines.append(f"| {name} | {len(rows)} | {told} |")
    return "\n".join(lines) + "\n"


def _told(log_error: Array) -> str:
    error = 100.0 * np.expm1(log_error)
    return f"{np.abs(error).mean():.1f} / {np.abs(error).max():.1f} / {error.mean():+.1f}"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(report(A100, A100_SOURCES), encoding="utf-8")
