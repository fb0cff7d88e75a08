"""Predict a plan whose stages have replicas of their own, or whose pipeline never flushes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import inf

import numpy as np

from parsim.arrays import Index
from parsim.sim.changed_memory import PeakBytes, with_memory
from parsim.sim.confidence.interval import Interval
from parsim.sim.prediction import Prediction
from parsim.sim.program import by_events
from parsim.sim.stages.run import TaskRun
from parsim.strategy.synchronous import GATHER, LATE, NORM


def prediction_of(run: TaskRun, alike: Prediction) -> Prediction:
    """What parsim says of a plan run as tasks.

    Args:
        run: the plan.
        alike: the prediction of the plan with one replica of each stage and a flush, whose
            evidence its interval and margin are from.
    """
    job, plan, step = run.job, run.plan, run.step_time
    bubble = 1.0 - float(run.busy.repeat(run.widths).mean()) / run.pipeline_time
    bubble = 0.0 if abs(bubble) < 1e-12 else bubble
    flops = float(job.model.step_flops(plan.global_batch_size))
    capable = step * alike.peak_flops * plan.world_size
    return replace(
        _with_memory(run, alike),
        plan=plan,
        step_time=step,
        interval=_interval(run, alike),
        pipeline_time=run.pipeline_time,
        tokens_per_second=plan.global_batch_size * job.model.tokens / step,
        mfu=flops / capable,
        hfu=flops * alike.hfu / alike.mfu / capable,
        bubble_fraction=bubble,
        bubble_overhead=bubble / (1.0 - bubble),
        device_span=run.pipeline_time,
        breakdown=_breakdown(run),
        notes=(*alike.notes, *_notes(run)),
    )


def _with_memory(run: TaskRun, alike: Prediction) -> Prediction:
    """What the stages hold, in place of what stages that are alike do."""
    ranks = PeakBytes(
        peaks=tuple(float(peak) for peak in run.peaks),
        categories=[_memory(run, stage) for stage in range(run.plan.pp)],
    )
    activations = sum(alike.activations.values()) or inf
    return with_memory(alike, run.job.software, ranks, activations=activations)


def tier_times(run: TaskRun) -> tuple[float, float]:
    """Seconds of the tasks by the recurrence and by events."""
    return float(run.end.updated[0]), by_events(run.program).updated


def _interval(run: TaskRun, alike: Prediction) -> Interval:
    """The interval, as wide as that of the plan of equal stages, and what it does not stand on."""
    scale = run.step_time / alike.step_time
    what = "a pipeline without flush" if run.versions else "stages with replicas of their own"
    return Interval(
        low=alike.interval.low * scale,
        high=alike.interval.high * scale,
        basis=f"{alike.interval.basis}; no measured run of {what}",
    )


def _breakdown(run: TaskRun) -> dict[str, float]:
    """Parts that sum to the step, mean over devices, seconds."""
    weights = run.widths[[run.priced.replicas.ranks(stage)[0] for stage in range(run.plan.pp)]]
    each = run.plan.num_microbatches / int(run.widths.sum())
    shares = _pass_parts(run, weights, each)
    if run.versions is None:
        return {**shares, **_behind_pipeline(run, sum(shares.values()))}
    shares["gradient_reduction"] = float(np.sum(run.waited * weights)) * each
    shares["optimizer"] = float((run.prices.update * weights).sum()) * each / run.versions.batch
    return {**shares, "bubble": run.step_time - sum(shares.values())}


def _pass_parts(run: TaskRun, weights: Index, each: float) -> dict[str, float]:
    """What passes take; stages count by `weights`, each device has `each` micro-batches."""
    names = ("forward", "backward", "exposed_forward", "exposed_backward", "recomputed")
    ahead, back, hidden, behind, again = (
        float((run.priced.mixed(name) * weights).sum()) * each for name in names
    )
    return {
        "forward": ahead - hidden,
        "backward": back - behind - again,
        "recompute": again,
        "exposed_communication": hidden + behind,
    }


def _behind_pipeline(run: TaskRun, busy: float) -> dict[str, float]:
    """The bubble beside `busy` seconds of a pipeline that flushes, and what comes behind it."""
    times, updated = run.end.times, float(run.end.updated[0])
    before = float(times[LATE].end.max())
    norm, gather = (float(run.prices.tail[name].max()) for name in (NORM, GATHER))
    return {
        "bubble": run.pipeline_time - busy,
        "gradient_reduction": before - run.pipeline_time,
        "gradient_norm": norm,
        "optimizer": updated - before - norm - gather,
        "parameter_gather": gather,
        "straggler": run.step_time - updated,
    }


def _memory(run: TaskRun, stage: int) -> Mapping[str, float]:
    """Bytes by category at the peak of a stage: its versions are parameters."""
    use = dict(run.priced.memory(stage))
    static = sum(use.values()) - use["activations"]
    stashed = run.versions.kept(stage) - 1 if run.versions else 0
    older = stashed * float(run.prices.weights[stage])
    waiting = run.priced.waiting(stage)
    rest = float(run.peaks[stage]) - static - older - waiting
    use["parameters"] += older
    use["gradients"] += waiting
    return {**use, "activations": rest}


def _notes(run: TaskRun) -> Iterator[str]:
    """What a reader must know of the numbers."""
    if run.versions is not None:
        late = [run.versions.delay(stage) for stage in range(run.plan.pp)]
        yield (
            f"{run.versions.rule}: gradients meet weights that are {late} updates newer, stage by "
            f"stage; convergence is not predicted"
        )
    elif run.plan.stages is not None:
        yield (
            f"per-rank numbers are those of a rank of each of {run.plan.pp} stages; "
            f"micro-batch M runs on replica M mod r"
        )
