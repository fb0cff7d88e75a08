"""One rank's part of `parsim run` for a pipeline whose stages differ or that never flushes.

The first rank that knows the losses writes `steps.jsonl`. Rank 0 writes `run.json`, with the loss
against seconds and samples, and beside the predicted peak of each stage the measured one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from executor.devices.all_ranks import gathered
from executor.devices.machine import DeviceReport
from executor.faults.reports import HERE
from executor.model.graph.modules import check_cut
from executor.model.stage import has_experts, layer_count
from executor.parallel.refused import check_splits
from executor.run.part import RankPart
from executor.run.results import save_results
from executor.run.stage_tasks.checks import replayed, verify
from executor.run.stage_tasks.stage_trainer import StageTrainer
from executor.run.stage_tasks.stepped import Stepped, rounds_of
from executor.run.start import Start, started
from executor.run.strategy_document import Measured, strategy_document
from executor.run.teller import Teller
from parsim.cost.step.stages import plan_cut
from parsim.errors import PlanError
from parsim.launch.options import RunOptions
from parsim.model.graph.record import Graph
from parsim.model.reader import Description
from parsim.plan import Plan
from parsim.plan.names import WITHOUT_FLUSH
from parsim.plan.rules.executor.training import wrong_update
from parsim.scenario import Scenario
from parsim.sim import Prediction
from parsim.sim.stages.variants import alike

UNSCALED = ("fp32", "tf32", "bf16", "bf16_amp")
"""Precisions whose gradients need no scale of the loss."""


def check_pipeline(scenario: Scenario, kind: str) -> None:
    """Refuse what a pipeline that is run task by task does not do here.

    Raises:
        PlanError: naming the field.
    """
    plan = scenario.fixed_plan()
    never = plan.schedule in WITHOUT_FLUSH
    what = f"schedule={plan.schedule!r}" if never else "stages of their own"
    if kind != "cpu":
        raise PlanError(f"{what}: run on the CPU alone so far; use --device cpu, or simulate it")
    _check_precision(plan, what)
    _check_tensor_ranks(plan, scenario.model, what)
    if (message := wrong_update(plan, scenario.job.model, scenario.job.clip)) is not None:
        raise PlanError(message)
    if isinstance(scenario.model, Graph):
        check_cut(scenario.model, plan_cut(alike(plan), layer_count(scenario.model)))


def _check_precision(plan: Plan, what: str) -> None:
    if plan.precision not in UNSCALED:
        raise PlanError(
            f"precision={plan.precision!r}: {what} do not scale the loss; use one of "
            f"{', '.join(UNSCALED)}"
        )
    if plan.precision == "bf16" and plan.reduce_precision != "fp32":
        raise PlanError(
            f"reduce_precision={plan.reduce_precision!r}: {what} send gradients as they are added "
            f"up; use reduce_precision=fp32"
        )


def _check_tensor_ranks(plan: Plan, spec: Description, what: str) -> None:
    wide = max(plan.stage_tp)
    if wide > 1 and (plan.sequence_parallel or isinstance(spec, Graph) or has_experts(spec)):
        raise PlanError(
            f"tp={wide}: {what} run with tensor parallelism of dense transformers without sequence "
            f"parallelism; use tp=1, or sequence_parallel=false"
        )
    if not isinstance(spec, Graph):
        for degree in plan.stage_tp:
            check_splits(spec, degree, sequence_parallel=False, copies=False)


def run_pipeline(scenario: Scenario, report: DeviceReport, options: RunOptions) -> None:
    """Train for warm-up and measured steps, verify where asked for, and write what came out."""
    with started(scenario, report, options) as start:
        HERE.enter("verify" if options.verify else "build")
        part = RankPart.of(scenario, options, start.device)
        session = StageTrainer(part)
        checked = verify(session) if options.verify else None
        told = _train(part, session)
        if start.predicted is not None:
            HERE.enter("write")
            _write(start, start.predicted, session, told, checked)


class _Told(NamedTuple):
    """What all ranks tell of a training: one entry a rank, so that rank 0 can write it down."""

    stepped: list[Stepped]
    weights: list[list[NDArray[Any]]]
    peaks: list[float]
    versions: list[int]


def _train(part: RankPart, session: StageTrainer) -> _Told:
    """Train and measure memory; every rank must call it."""
    HERE.enter("step", 0)
    stepped = gathered(_trained(part, session))
    # arrays, because tensors of other ranks would count as this one's memory
    weights = gathered([weight.float().numpy().copy() for weight in session.rank.weights.newest])
    HERE.enter("memory", part.options.last_step)
    return _Told(stepped, weights, gathered(session.peak()), gathered(session.most_versions))


def _write(
    start: Start,
    predicted: Prediction,
    session: StageTrainer,
    told: _Told,
    checked: dict[str, Any] | None,
) -> None:
    """Write `run.json`; where the run is verified, with what its replay differs by."""
    scenario, options = start.scenario, start.options
    measured = Measured(
        rounds=[rounds_of(told.stepped, session.count)],
        warmup=options.warmup,
        samples=(predicted.plan.global_batch_size,),
        in_step=True,
    )
    meta = start.meta()
    document = strategy_document(scenario, start.report, predicted, measured, checked, meta)
    error = replayed(session, told.weights) if options.verify else None
    document["strategy"] |= {"replay_error": error, "versions_by_rank": told.versions}
    _add_memory(document, predicted, session.by_stage(told.peaks))
    save_results(scenario, options.out, document, measured.losses, options.warmup)


def _trained(part: RankPart, session: StageTrainer) -> Stepped:
    """Train, and tell of steps on one of the ranks; what tells is gone when memory is measured."""
    if not session.tells:
        return session.train()
    return session.train(Teller.of(part, lambda _: session.update.rate).add)


def _add_memory(document: dict[str, Any], predicted: Prediction, peaks: Sequence[float]) -> None:
    """The highest peak of each stage's replicas beside the predicted one."""
    document["measured"]["peak_allocated_bytes"] = list(peaks)
    document["predicted"]["peak_allocated_bytes"] = list(predicted.peak_allocated)
    pairs = zip(predicted.peak_allocated, peaks, strict=True)
    document["error"]["peak_memory_by_stage"] = [ours / theirs - 1.0 for ours, theirs in pairs]
