"""Spaces that no plan could be in, and why a space turned out to hold none."""

from __future__ import annotations

from dataclasses import replace

from parsim.cost.job import Job
from parsim.errors import PlanError
from parsim.plan import Plan, PlanSpace, Recompute
from parsim.plan.names import AUTO
from parsim.plan.rules.degrees import ZERO_STAGES
from parsim.plan.rules.violation import check_plan
from parsim.plan.space import FEWEST, Between, chosen
from parsim.planner.space.enumeration import Enumeration, enumerate_plans
from parsim.planner.space.left_out import ALL, lacking
from parsim.planner.space.shapes import all_degrees
from parsim.planner.stop import Stop
from parsim.space.axes import AXES, SETTINGS
from parsim.space.words import axis_words


def check_space(job: Job, space: PlanSpace) -> None:
    """Refuse a space of another batch, or whose fixed fields no plan could have (precision, ...).

    Raises:
        PlanError: what is wrong, with the allowed values.
    """
    if job.global_batch_size not in (None, space.global_batch_size):
        raise PlanError(
            f"global_batch_size={space.global_batch_size} of the space is not that of the job; "
            f"use global_batch_size={job.global_batch_size}"
        )
    _check_zero_stages(job, space)
    _check_recomputed_layers(job, space)
    check_plan(_without_degrees(job, space), job.model, job.cluster)


def _without_degrees(job: Job, space: PlanSpace) -> Plan:
    """What all plans of the space share, on whole replicas over all devices."""
    return replace(
        space.common,
        tp=1,
        pp=1,
        cp=1,
        dp_replicate=job.cluster.num_devices,
        dp_shard=1,
        zero_stage=0,
        v=1,
        schedule="1f1b",
        actions=None,
        action_times=None,
        sequence_parallel=False,
        stage_layers=None,
    )


def _check_zero_stages(job: Job, space: PlanSpace) -> None:
    """Refuse stages that there are none of, and a space whose stack has none of those it asks."""
    listed = space.zero_stage if isinstance(space.zero_stage, tuple) else ()
    for stage in listed:
        if stage not in ZERO_STAGES:
            raise PlanError(
                f"zero_stage={stage} is unknown; allowed: {', '.join(map(str, ZERO_STAGES))}"
            )
    if not any(chosen(space.zero_stage, job.software.zero_stages_with(pp)) for pp in (1, 2)):
        raise PlanError(
            f"zero_stage {space.zero_stage} leaves none of the stages of {job.software.id}: "
            f"{', '.join(map(str, job.software.zero_stages))}; widen it, or list others"
        )


def _check_recomputed_layers(job: Job, space: PlanSpace) -> None:
    """Refuse numbers of recomputed layers where nothing can have them."""
    asked = space.recompute_layers
    if asked is not None and FEWEST in asked and job.mixed:
        raise PlanError(
            "recompute_layers=fewest needs nodes of one kind; list numbers, e.g. [0, 2, 4]"
        )
    if asked is not None and FEWEST in asked and set(space.schedule or ()) == {AUTO}:
        raise PlanError(
            f"recompute_layers=fewest beside schedule={AUTO}: a layer more may leave room for a "
            f"faster order, so that the fewest need not be the best; list numbers, e.g. [0, 2, 4]"
        )
    if asked is None or 0 in asked or FEWEST in asked:
        return
    if job.software.checkpoints_stages:
        raise PlanError(
            f"recompute_layers: {job.software.id} recomputes whole stages; leave it away, and use "
            f"recompute: none or full"
        )
    if set(space.recompute) == {Recompute.FULL}:
        raise PlanError(
            "recompute_layers: recompute=full recomputes all layers; add none or selective to "
            "recompute, or leave recompute_layers away"
        )


def nothing_legal(job: Job, space: PlanSpace, listed: Enumeration) -> str:
    """Why a space holds no plan at all."""
    if not listed.reasons and next(all_degrees(job, space), None) is None:
        return (
            "no plan is legal: no tp x pp x dp of the space multiplies to the number of devices "
            f"and divides the global batch; {_to_widen(job, space)}"
        )
    if not listed.reasons:
        names = lacking(job.software, space)
        hint = f"; {job.software.id} lacks {names}: search.schedule names them if wanted"
        return (
            "no plan is legal: with the degrees of the space none of its schedules with its v, "
            "ZeRO stages or sequence parallelism is possible; "
            f"{_to_widen(job, space)}{hint if names else ''}"
        )
    first = max(listed.reasons, key=listed.reasons.__getitem__)
    return f"no plan is legal: {listed.illegal} of {listed.enumerated} refused; most often: {first}"


def _to_widen(job: Job, space: PlanSpace) -> str:
    """Which axes each alone leave no plan, or all that the space narrows where it is none alone."""
    unsaid = (None, Between())
    narrow = {
        axis.name: values
        for axis in AXES
        if (values := space.allowed(axis.name)) not in (*unsaid, ALL.get(axis.name))
    }
    alone = [name for name in narrow if _holds_plans(job, _widened(space, name))]
    words = [f"{name} ({axis_words(narrow[name] or ())})" for name in alone or narrow]
    return f"widen {' or '.join(words)}" if words else "change the devices or the global batch"


def _widened(space: PlanSpace, name: str) -> PlanSpace:
    """The space with every value of an axis, or that which all plans share."""
    if name in SETTINGS:
        others = {axis: values for axis, values in space.varied.items() if axis != name}
        return replace(space, varied=others)
    return space.with_axes({name: ALL.get(name)})


def _holds_plans(job: Job, space: PlanSpace) -> bool:
    """Whether a space holds a legal plan; a few are enough."""
    at_once = Stop(until=0.0)
    return enumerate_plans(job, space, at_once).families is not None
