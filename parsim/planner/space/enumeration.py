"""Enumerate a plan space into one table, counting what the rules refuse.

Duplicates are left out by construction: without a pipeline every schedule is the same loop, only
interleaving has any number of chunks, sequence parallelism needs tensor parallelism, ZeRO needs
replicas.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, product

import numpy as np

from parsim.cost.job import Job
from parsim.cost.legal import unrun
from parsim.errors import PlanError
from parsim.model.model import Model
from parsim.plan import Plan, PlanSpace, PlanTable, Recompute
from parsim.plan.divisors import divisors
from parsim.plan.rules import RULES, SHAPE_RULES, ZERO_STAGES, Rule, check_plan, violation
from parsim.plan.space import chosen
from parsim.planner.space.cuts import balanced_twins
from parsim.planner.space.left_out import lacking
from parsim.planner.space.settings import combinations, other_plans, ruled, with_setting
from parsim.planner.space.shapes import Degrees, all_degrees, chunks, offloads


@dataclass(frozen=True, slots=True, kw_only=True)
class Enumeration:
    """The legal plans and how many were looked at.

    `reasons` maps the first broken rule's message to how many plans it refused.
    """

    table: PlanTable | None
    enumerated: int
    illegal: int
    reasons: dict[str, int]


_Option = tuple[int, int, Recompute, bool, int]
"""ZeRO stage, dp_shard, recomputation, sequence parallelism, layers of a stage on the host."""


@dataclass(slots=True)
class _Rows:
    """Legal shapes so far, each with its options, and what was refused."""

    shapes: list[tuple[int, ...]] = field(default_factory=list)
    schedules: list[str] = field(default_factory=list)
    options: list[list[_Option]] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)


def enumerate_plans(job: Job, space: PlanSpace) -> Enumeration:
    """Every legal plan of a space.

    Legality depends on the shape (degrees, micro-batch, schedule, chunks); each shape is checked
    once with the same rules as a single plan, and its options (ZeRO, recompute, sequence
    parallelism) are those that make sense for it.

    Raises:
        PlanError: the space holds a value that no plan could ever have.
    """
    every = list(combinations(job, space))
    tables, enumerated, reasons = [], 0, Counter[str]()
    listed: dict[tuple[object, ...], tuple[PlanTable | None, _Rows]] = {}
    for values in every:
        decisive, own = ruled(job, values), with_setting(space, values)
        if decisive not in listed:
            rows = _listed(job, own)
            listed[decisive] = (_table(own, rows) if rows.shapes else None, rows)
            reasons += rows.reasons
            enumerated += rows.reasons.total()
        table = listed[decisive][0]
        if table is None:
            continue
        kept = other_plans(table, every[0], values)
        if kept.any():
            some = table if kept.all() else table.take(kept)
            shared = some.sharing(values)
            tables += (each := [shared, *balanced_twins(job, shared)])
            enumerated += sum(map(len, each))
    return Enumeration(
        table=PlanTable.joined(tables) if tables else None,
        enumerated=enumerated,
        illegal=reasons.total(),
        reasons=dict(reasons),
    )


def _listed(job: Job, space: PlanSpace) -> _Rows:
    """All shapes of a space whose plans share all settings."""
    rows = _Rows()
    for degrees in dict.fromkeys(all_degrees(job, space)):  # a value may be listed twice
        _add(rows, job, space, degrees)
    return rows


def _add(rows: _Rows, job: Job, space: PlanSpace, degrees: Degrees) -> None:
    """Add all plans of some degrees: every schedule and number of chunks, with every option."""
    options = list(dict.fromkeys(_options(job, space, degrees)))
    kinds = [
        (schedule, v, offloads(job, space, degrees.pp, schedule, v))
        for schedule, v in dict.fromkeys(chunks(job, space, degrees.pp))
    ]
    single = _plan(space, degrees, job.model)
    rules = RULES
    if space.common.actions is None:  # what is wrong with a pipeline of one chunk is so with all
        message = violation(single, job.model, job.cluster)
        if message is not None:
            rows.reasons[message] += len(options) * sum(len(layers) for _, _, layers in kinds)
            return
        rules = SHAPE_RULES
    for schedule, v, layers in kinds:
        plan = replace(single, schedule=schedule, v=v)
        legal = _legal(rows, job, plan, layers, options, rules)
        if job.software.executor:
            legal = _runnable(rows, job, plan, degrees, legal)
        if legal:
            rows.shapes.append(_shape_row(plan, degrees))
            rows.schedules.append(schedule)
            rows.options.append(legal)


def _legal(
    rows: _Rows,
    job: Job,
    plan: Plan,
    offloaded: Sequence[int],
    options: list[tuple[int, int, Recompute, bool]],
    rules: tuple[Rule, ...],
) -> list[_Option]:
    """The options of a shape with each number of layers on the host that no rule forbids."""
    legal: list[_Option] = []
    for layers in offloaded:
        same = layers == plan.offload_layers
        tried = plan if same else replace(plan, offload_layers=layers)
        message = violation(tried, job.model, job.cluster, rules)
        if message is not None:
            rows.reasons[message] += len(options)
            continue
        legal += [(*option, layers) for option in options]
    return legal


def _runnable(
    rows: _Rows, job: Job, plan: Plan, degrees: Degrees, options: list[_Option]
) -> list[_Option]:
    """The options of a shape that parsim's executor runs; the others are refused."""
    legal = []
    for option in options:
        stage, shard, recompute, sequence, layers = option
        tried = replace(
            plan,
            zero_stage=stage,
            recompute=recompute,
            sequence_parallel=sequence,
            dp_replicate=degrees.dp // shard,
            dp_shard=shard,
            offload_layers=layers,
        )
        message = unrun(job, tried)
        if message is None:
            legal.append(option)
        else:
            rows.reasons[message] += 1
    return legal


def _shards(space: PlanSpace, degrees: Degrees, zero_stage: int) -> tuple[int, ...]:
    """Replicas that share the parameters: all of them, or with HSDP also a part; 1 without ZeRO."""
    if space.dp_shard is None:
        return (degrees.dp if zero_stage else 1,)
    legal = (divisors(degrees.dp)[1:] or [1]) if zero_stage else [1]
    return tuple(shard for shard in legal if shard in space.dp_shard)


def _options(
    job: Job, space: PlanSpace, degrees: Degrees
) -> Iterator[tuple[int, int, Recompute, bool]]:
    model, stages = job.model, job.software.zero_stages_with(degrees.pp)
    whole = model.tokens % (degrees.cp * degrees.tp) == 0
    routed = model.experts is not None and degrees.tp > 1  # each rank routes its own tokens
    for stage in chosen(space.zero_stage, stages):
        if stage and degrees.dp * degrees.cp == 1:
            continue
        shards = _shards(space, degrees, stage)
        for shard, recompute, sequence in product(shards, space.recompute, space.sequence_parallel):
            if (sequence and (degrees.tp == 1 or not whole)) or (routed and not sequence):
                continue
            yield (stage, shard, recompute, sequence)


def _plan(space: PlanSpace, degrees: Degrees, model: Model) -> Plan:
    """A plan of some degrees whose pipeline, if it has one, is of one chunk a rank."""
    return replace(
        space.common,
        tp=degrees.tp,
        pp=degrees.pp,
        dp_replicate=degrees.dp,
        dp_shard=1,
        cp=degrees.cp,
        ep=degrees.ep,
        zero_stage=0,
        microbatch_size=degrees.microbatch_size,
        num_microbatches=space.global_batch_size // (degrees.dp * degrees.microbatch_size),
        schedule="1f1b",
        v=1,
        sequence_parallel=model.experts is not None and degrees.tp > 1,
        stage_layers=None,
    )


def _shape_row(plan: Plan, degrees: Degrees) -> tuple[int, ...]:
    """What `_table` needs of a shape."""
    sizes = (plan.microbatch_size, plan.num_microbatches, plan.v)
    return (degrees.tp, degrees.pp, degrees.cp, degrees.dp, degrees.ep, *sizes)


def _table(space: PlanSpace, rows: _Rows) -> PlanTable:
    """All shapes with all their options as columns."""
    names = tuple(dict.fromkeys(rows.schedules))
    each = [len(options) for options in rows.options]
    shapes = np.repeat(np.array(rows.shapes, dtype=np.int64), each, axis=0)
    tp, pp, cp, dp, ep, size, count, v = shapes.T
    flat = chain.from_iterable(chain.from_iterable(rows.options))
    stage, shard, recompute, sequence, offload = np.fromiter(flat, dtype=np.int64).reshape(-1, 5).T
    return PlanTable(
        tp=tp,
        pp=pp,
        dp_replicate=dp // shard,
        dp_shard=shard,
        cp=cp,
        ep=ep,
        etp=np.full_like(tp, space.common.etp),
        microbatch_size=size,
        num_microbatches=count,
        v=v,
        zero_stage=stage,
        sequence_parallel=sequence > 0,
        recompute=recompute,
        offload_layers=offload,
        schedule=np.repeat(np.array([names.index(name) for name in rows.schedules]), each),
        schedules=names,
        setting=np.zeros_like(tp),
        settings=(replace(space.common, stage_layers=None),),
    )


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
    probe = replace(
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
    check_plan(probe, job.model, job.cluster)


def nothing_legal(job: Job, space: PlanSpace, listed: Enumeration) -> str:
    """Why a space holds no plan at all."""
    if not listed.reasons and next(all_degrees(job, space), None) is None:
        return (
            "no plan is legal: no tp x pp x dp of the space multiplies to the number of devices "
            "and divides the global batch; widen tp, pp or microbatch_size"
        )
    if not listed.reasons:
        names = lacking(job.software, space)
        hint = f"; {job.software.id} lacks {names}: search.schedule names them if wanted"
        return (
            "no plan is legal: with the degrees of the space none of its schedules with its v, "
            f"ZeRO stages or sequence parallelism is possible{hint if names else ''}"
        )
    first = max(listed.reasons, key=listed.reasons.__getitem__)
    return f"no plan is legal: {listed.illegal} of {listed.enumerated} refused; most often: {first}"
