"""Releases of a software that take far longer or shorter for a plan than all its other releases."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log

from parsim.fitting.intervals.residuals import Residual
from parsim.sim.confidence.known_errors import Key

IRREGULAR = 1.25
"""A release whose time for a plan is so many times that of any other release's is no usual one:
plans that several releases ran differ by 3 % in the median and 10 % in nine of ten cases."""
SAME_PLAN = ("model", "precision", "n_gpus", "tp", "pp", "v", "dp", "cp", "ep", "zero_stage",
             "fsdp_size", "microbatch_size", "num_microbatches", "seq_len")  # fmt: skip
"""Columns in which two runs of one plan agree."""


def departures(runs: Sequence[Residual]) -> list[float]:
    """By how much each run departs from all other releases that ran its plan; 0 where not much.

    The factor between its measured time and the nearest of theirs; predictions do not enter.
    """
    plans = _by_plan(runs)
    return [_departs(run, plans.get(_plan_of(run), [])) for run in runs]


def _departs(run: Residual, same: Sequence[Residual]) -> float:
    others = [other.measured for other in same if released(other) != released(run)]
    least = min((exp(abs(log(run.measured / other))) for other in others), default=0.0)
    return least if least >= IRREGULAR else 0.0


def _by_plan(runs: Sequence[Residual]) -> dict[tuple[object, ...], list[Residual]]:
    """Runs of stated releases by what their tables say of device, software, model and plan."""
    plans: dict[tuple[object, ...], list[Residual]] = {}
    for run in runs:
        if run.standing.release:
            plans.setdefault(_plan_of(run), []).append(run)
    return plans


def _plan_of(run: Residual) -> tuple[object, ...]:
    told = (getattr(run.run, column, None) for column in SAME_PLAN)
    return (run.device, run.software, *told)


def released(run: Residual) -> Key:
    """The device, the software and its release that a run was on."""
    return run.device, run.software, run.standing.release
