"""What recorded runs of a device correct in plans like theirs, and how far that leaves them off.

A run corrects plans of its condition: split over tensor ranks or not, with sequence parallelism or
not, ZeRO-3 or not. There, of its kind of action,

    factor = exp( mean over runs of ln(measured / predicted) )

on forwards, backwards and updates, which kernels and whole layers by themselves have been timed
for, but not in a step: caches, allocations, hooks, other ranks beside them.
Leaves out: how a factor changes with size; runs of another condition say nothing of a plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log
from typing import Literal

import numpy as np

from parsim.arrays import Array
from parsim.cluster.evidence import RecordedStep
from parsim.cluster.hardware import Device
from parsim.plan import Plan, PlanTable

Corrected = Literal["forward", "backward", "optimizer"]


def condition_of(plan: Plan) -> tuple[str, bool]:
    """What a recorded run must have in common with a plan: split, and ZeRO-3 over ranks."""
    split = "none" if plan.tp == 1 else "sequence" if plan.sequence_parallel else "tensor"
    return split, plan.zero_stage == 3 and plan.dp_shard > 1


def runs_for(device: Device, plan: Plan) -> list[RecordedStep]:
    """The recorded runs that correct a plan."""
    return [run for run in device.steps if run.condition == condition_of(plan)]


def step_factor(device: Device, table: PlanTable, part: Corrected) -> Array | float:
    """Factor on an action's seconds for each plan of a table, (B,); 1 where no run says anything.

    Source: the device's recorded runs.
    """
    if not device.steps:
        return 1.0
    factor = np.ones(len(table))
    for condition in dict.fromkeys(run.condition for run in device.steps):
        alike = [run for run in device.steps if run.condition == condition]
        factor = np.where(_rows(table, condition), _mean(alike, part), factor)
    return factor


def step_errors(device: Device, plan: Plan) -> tuple[float, ...]:
    """Log errors that recorded runs leave: of a plan's condition after correction by the others.

    One run alone has what its own correction leaves. Where no run is of the condition, what
    predictions without correction were off: nothing of it is corrected there.
    """
    alike = runs_for(device, plan)
    if len(alike) == 1:
        return (log(alike[0].left),)
    if not alike:
        return tuple(log(run.step) for run in device.steps)
    logs = [log(run.step) for run in alike]
    return tuple(x - (sum(logs) - x) / (len(logs) - 1) for x in logs)


def recorded_notes(device: Device, model: str, plan: Plan) -> tuple[str, ...]:
    """What a reader must know of runs that corrected a prediction."""
    runs = runs_for(device, plan)
    if not runs:
        return ()
    factors = ", ".join(
        f"{part} x {_mean(runs, part):.3f}" for part in ("forward", "backward", "optimizer")
    )
    listed = "; ".join(run.words for run in runs)
    count = "a recorded run" if len(runs) == 1 else f"{len(runs)} recorded runs"
    notes = [f"corrected by what {count} showed ({factors}): {listed}"]
    if any((run.model, run.plan) == (model, plan.label()) for run in runs):
        notes.append(
            "calibrated from a run of this very plan: its step time is no independent prediction"
        )
    return tuple(notes)


def _mean(runs: Sequence[RecordedStep], part: str) -> float:
    return exp(sum(log(getattr(run, part)) for run in runs) / len(runs))


def _rows(table: PlanTable, condition: tuple[str, bool]) -> Array:
    """The plans of a condition, (B,)."""
    split, sharded = condition
    sequence = np.asarray(table.sequence_parallel) & (table.tp > 1)
    alike = {"none": table.tp == 1, "sequence": sequence, "tensor": (table.tp > 1) & ~sequence}
    zero3 = (table.zero_stage == 3) & (table.dp_shard > 1)
    return np.asarray(alike[split] & (zero3 == sharded))
