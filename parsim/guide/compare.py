"""Predicts the best plan of each family and compares them: `parsim guide`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from parsim.cost.jitter import Jitter
from parsim.cost.job import Job
from parsim.cost.legal import illegal
from parsim.errors import InputError
from parsim.guide.families import StrategyFamily, families, one_device, with_batches
from parsim.guide.record import FamilyRow, Guide, choose, reasons_for
from parsim.plan import Plan, Recompute
from parsim.scenario import Scenario
from parsim.sim import Prediction, simulate
from parsim.sim.confidence.memory_fit import Fit
from parsim.sim.cuts import with_better_cut
from parsim.sim.plan_interval import software_unsaid

Progress = Callable[[int, int], None]
WAITS = {
    "exposed_communication": "exchanges inside layers",
    "bubble": "the pipeline's bubble",
    "gradient_reduction": "the reduction of gradients",
    "parameter_gather": "the gather of parameters",
    "optimizer": "the update",
    "straggler": "stragglers",
    "recompute": "recomputation",
}
"""Parts of a step that are no forward and no backward, in words."""
WORTH_NAMING = 0.1
"""A share of the step below which compute is what limits."""


SLOWER = 1.02
"""The next micro-batch whose step is so many times as long is the last one tried."""
QUEUED = 1.005
"""A step that is no more than so many times what its busiest queue serves: no other is shorter."""


def guide(scenario: Scenario, progress: Progress | None = None) -> Guide:
    """Compare all families on a scenario's model, system, software and global batch."""
    job = scenario.job
    common = _bare(scenario.plan_space().common)
    known = families(job)
    rows: list[FamilyRow] = []
    for number, family in enumerate(known):
        rows.append(_row(family, job, common, scenario))
        if progress is not None:
            progress(number + 1, len(known))
    rows = [_scaled(row, rows[0], job.cluster.num_devices) for row in rows]
    chosen = choose(rows)
    return Guide(
        scenario=scenario.name,
        rows=tuple(rows),
        chosen=chosen,
        reasons=tuple(reasons_for(job, rows, chosen)),
    )


def _bare(common: Plan) -> Plan:
    """What all families share: precisions, overlaps, buckets, statistics of whole batches."""
    kept = (
        *("precision", "gradient_precision", "reduce_precision", "bucket_bytes"),
        *("overlap_grad_reduce", "overlap_param_gather", "overlap_p2p", "sync_batch_norm"),
    )
    return Plan(**{name: getattr(common, name) for name in kept})


def _row(family: StrategyFamily, job: Job, common: Plan, scenario: Scenario) -> FamilyRow:
    """The fastest plan of a family that fits, else the one that lacks least."""
    plans = family.plans(job, common)
    if isinstance(plans, str):
        return _without(family, plans)
    batch, jitter, margin = scenario.global_batch_size, scenario.jitter, scenario.memory_margin
    if family.name == "one device":  # that of the speed-ups is none of the slow ones
        batch, job = max(batch // job.cluster.num_devices, 1), one_device(job)
        jitter = jitter.without("slow_ranks")
    for recompute in (Recompute.NONE, Recompute.FULL):
        shaped = [with_batches(replace(plan, recompute=recompute), batch) for plan in plans]
        predictions, reason = _of_all(job, shaped, margin, jitter)
        if any(prediction.fit is not Fit.TOO_LARGE for prediction in predictions):
            break
    if not predictions:
        unit = f"dp={plans[0].dp} does not divide global_batch_size={batch}"
        return _without(family, reason or unit)
    best = _best(_timed(job, predictions, margin, jitter))
    if software_unsaid(job):
        best = _with_stacks(job, best, margin, jitter)
    return _of(family, best)


def _of_all(
    job: Job, shaped: Iterable[Iterable[Plan]], margin: float | None, jitter: Jitter
) -> tuple[list[Prediction], str]:
    """Predictions of all plans of a family with all their micro-batches; why the first has none."""
    tried = [_predicted(job, sizes, margin, jitter) for sizes in shaped]
    return [prediction for some, _ in tried for prediction in some], tried[0][1]


def _predicted(
    job: Job, plans: Iterable[Plan], margin: float | None, jitter: Jitter
) -> tuple[list[Prediction], str]:
    """Predictions of the legal plans, without intervals of several stacks; why others are not.

    Where events alone tell a step they are not run yet.
    """
    predictions, reason = [], ""
    for plan in plans:
        message = illegal(job, plan)
        if message is None:
            try:
                predictions.append(_one(job, plan, margin, jitter, arrivals=False))
            except InputError as error:
                message = str(error)
        reason = reason or message or ""
        if len(predictions) > 1 and _passed_its_best(predictions):
            break
    return predictions, reason


def _timed(
    job: Job, predictions: list[Prediction], margin: float | None, jitter: Jitter
) -> list[Prediction]:
    """The predictions with the steps that events alone tell, which takes seconds each.

    They are run from the largest micro-batch that fits down, until a smaller one is slower or could
    not be faster, as a queue serves all the time; where none fits only the least full.
    """
    if all(each.strategy or not each.plan.runs_own_program for each in predictions):
        return predictions
    fitting = [each for each in predictions if each.fit is not Fit.TOO_LARGE]
    timed = list[Prediction]()
    for each in reversed(fitting or [_best(predictions)]):
        timed.append(_one(job, each.plan, margin, jitter))
        if timed[-1].step_time <= QUEUED * each.step_time:
            break
        if len(timed) > 1 and _passed_its_best(timed):
            break
    return timed[::-1]


def _one(
    job: Job, plan: Plan, margin: float | None, jitter: Jitter, *, arrivals: bool = True
) -> Prediction:
    """What `parsim simulate` says of the plan: stages are cut as it cuts them."""
    cut = with_better_cut(job, plan, margin)
    return simulate(job, cut, memory_margin=margin, jitter=jitter, stacks=False, arrivals=arrivals)


def _with_stacks(job: Job, best: Prediction, margin: float | None, jitter: Jitter) -> Prediction:
    """The prediction that a row shows, with the interval of all stacks that may run its plan."""
    every = simulate(job, best.plan, memory_margin=margin, jitter=jitter)
    return replace(best, interval=every.interval)


def _passed_its_best(predictions: list[Prediction]) -> bool:
    """Whether the last micro-batch is no longer of use: too large, or slower than before."""
    before, last = predictions[-2:]
    return last.fit is Fit.TOO_LARGE or last.step_time > SLOWER * before.step_time


def _best(predictions: list[Prediction]) -> Prediction:
    """The fastest that fits; of none, the one whose fullest device is the least full."""
    fitting = [each for each in predictions if each.fit is not Fit.TOO_LARGE]
    if not fitting:
        return min(predictions, key=lambda each: each.fullest.share)
    sure = [each for each in fitting if each.fit is Fit.FITS] or fitting
    return min(sure, key=lambda each: each.step_time)


def _without(family: StrategyFamily, reason: str) -> FamilyRow:
    return FamilyRow(
        name=family.name, same_training=family.same_training, prediction=None, reason=reason
    )


def _of(family: StrategyFamily, prediction: Prediction) -> FamilyRow:
    return FamilyRow(
        name=family.name,
        same_training=family.same_training,
        prediction=prediction,
        samples_per_second=prediction.plan.global_batch_size / prediction.step_time,
        limits=limits_of(prediction),
    )


def limits_of(prediction: Prediction) -> str:
    """What holds a plan back: memory, what its strategy says, or the largest part of waiting."""
    if prediction.fit is Fit.TOO_LARGE:
        return "memory"
    if prediction.strategy is not None:
        return prediction.strategy.limits
    name, seconds = max(_waits(prediction), key=lambda part: part[1])
    share = seconds / prediction.step_time
    return f"{name}, {100 * share:.0f} % of the step" if share > WORTH_NAMING else "compute"


def _waits(prediction: Prediction) -> Iterator[tuple[str, float]]:
    alone = {} if prediction.plan.pp > 1 else {"bubble": "waiting for the slowest device"}
    for part, words in (WAITS | alone).items():
        yield words, prediction.breakdown.get(part, 0.0)


def _scaled(row: FamilyRow, alone: FamilyRow, devices: int) -> FamilyRow:
    """The row with its speed-up over one device."""
    if row.prediction is None or not alone.samples_per_second:
        return row
    used = 1 if row is alone else devices
    speed_up = row.samples_per_second / alone.samples_per_second
    return replace(row, speed_up=speed_up, efficiency=speed_up / used)
