"""Enumerate a plan space into one table, counting what the rules refuse.

Duplicates are left out by construction: without a pipeline every schedule is the same loop, only
interleaving has any number of chunks, sequence parallelism needs tensor parallelism, ZeRO needs
replicas.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np

from parsim.arrays import Ints
from parsim.cost.job import Job
from parsim.cost.legal import unheld_heads, unrun
from parsim.cost.step.offload import no_host
from parsim.errors import PlanError
from parsim.model.model import Model
from parsim.plan import Plan, PlanSpace, PlanTable, Recompute
from parsim.plan.divisors import divisors
from parsim.plan.rules.degrees import ZERO_STAGES
from parsim.plan.rules.offload import offload_rules
from parsim.plan.rules.violation import RULES, SHAPE_RULES, check_plan, violation
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


@dataclass(slots=True)
class _Rows:
    """Legal shapes so far, each with its options, and what was refused.

    Options of a shape (N, 5) are ZeRO stage, dp_shard, recomputation, sequence parallelism and the
    layers of a stage on the host; most shapes share an array of `arrays` with others. `hosts` says
    whether hosts take activations, `moved` what is wrong with a number of layers of a shape there.
    """

    hosts: bool
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    schedules: list[str] = field(default_factory=list)
    options: list[Ints] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    arrays: dict[tuple[object, ...], Ints] = field(default_factory=dict)
    moved: dict[tuple[object, ...], str | None] = field(default_factory=dict)


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
        decisive, narrowed = ruled(job, values), with_setting(space, values)
        if decisive not in listed:
            rows = _listed(job, narrowed)
            listed[decisive] = (_table(narrowed, rows) if rows.shapes else None, rows)
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
    asked = space.offload_layers is not None
    rows = _Rows(hosts=asked and not any(map(no_host, job.cluster.systems)))
    for degrees in dict.fromkeys(all_degrees(job, space)):  # a value may be listed twice
        _add(rows, job, space, degrees)
    return rows


def _add(rows: _Rows, job: Job, space: PlanSpace, degrees: Degrees) -> None:
    """Add all plans of some degrees: every schedule and number of chunks, with every option."""
    each = len(_options_of(rows, job, space, degrees, (0,)))
    kinds = [
        (schedule, v, offloads(job, space, degrees.pp, schedule, v, hosts=rows.hosts))
        for schedule, v in dict.fromkeys(chunks(job, space, degrees.pp))
    ]
    single = _plan(space, degrees, job.model)
    rules = tuple(rule for rule in RULES if rule is not offload_rules)
    if space.common.actions is None:  # what is wrong with a pipeline of one chunk is so with all
        message = violation(single, job.model, job.cluster) or unheld_heads(job, single)
        if message is not None:
            rows.reasons[message] += each * sum(len(layers) for _, _, layers in kinds)
            return
        rules = SHAPE_RULES
    for schedule, v, layers in kinds:
        plan = replace(single, schedule=schedule, v=v)
        message = violation(plan, job.model, job.cluster, rules) or _unplaced(job, plan)
        message = message or unheld_heads(job, plan)
        if message is not None:
            rows.reasons[message] += each * len(layers)
            continue
        legal = tuple(_movable(rows, job, plan, layers, each))
        options = _options_of(rows, job, space, degrees, legal)
        if job.software.executor:
            options = _runnable(rows, job, plan, degrees, options)
        if len(options):
            rows.shapes.append(_shape_row(plan, degrees))
            rows.schedules.append(schedule)
            rows.options.append(options)


def _movable(rows: _Rows, job: Job, plan: Plan, layers: Sequence[int], each: int) -> Iterator[int]:
    """Yield the numbers of layers that an otherwise legal plan may have on the host.

    Each of the others refuses `each` plans. What the rule reads, beside what all plans share, is
    looked at once.
    """
    for count in layers:
        shape = (plan.schedule, plan.pp, plan.v, count)
        if shape not in rows.moved:
            moving = replace(plan, offload_layers=count)
            rows.moved[shape] = offload_rules(moving, job.model, job.cluster)
        message = rows.moved[shape]
        if message is None:
            yield count
        else:
            rows.reasons[message] += each


def _options_of(
    rows: _Rows, job: Job, space: PlanSpace, degrees: Degrees, layers: tuple[int, ...]
) -> Ints:
    """All options of some degrees with each number of layers on the host, (N, 5)."""
    whole = job.model.tokens % (degrees.cp * degrees.tp) == 0
    stages = job.software.zero_stages_with(degrees.pp)
    decisive = (stages, degrees.dp, degrees.cp == 1, degrees.tp == 1, whole, layers)
    if decisive not in rows.arrays:
        each = list(dict.fromkeys(_options(job, space, degrees)))
        listed = [(*option, count) for count in layers for option in each]
        rows.arrays[decisive] = np.array(listed, dtype=np.int64).reshape(-1, 5)
    return rows.arrays[decisive]


def _unplaced(job: Job, plan: Plan) -> str | None:
    """Why a schedule is not searched on nodes of several kinds; or None."""
    if not job.mixed or plan.copies == 1:
        return None
    return (
        f"schedule={plan.schedule!r} holds each stage on two ranks: on nodes of several kinds no "
        f"placement is searched for it; use 'dualpipe_v', or simulate it with a plan"
    )


def _runnable(rows: _Rows, job: Job, plan: Plan, degrees: Degrees, options: Ints) -> Ints:
    """The options of a shape that parsim's executor runs; the others are refused."""
    legal = np.ones(len(options), dtype=bool)
    for number, (stage, shard, recompute, sequence, layers) in enumerate(options.tolist()):
        tried = replace(
            plan,
            zero_stage=stage,
            recompute=Recompute(recompute),
            sequence_parallel=bool(sequence),
            dp_replicate=degrees.dp // shard,
            dp_shard=shard,
            offload_layers=layers,
        )
        message = unrun(job, tried)
        if message is not None:
            legal[number] = False
            rows.reasons[message] += 1
    return options[legal]


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
    columns = np.ascontiguousarray(np.array(rows.shapes, dtype=np.int64).T)
    tp, pp, cp, dp, ep, size, count, v = np.repeat(columns, each, axis=1)
    options = np.ascontiguousarray(np.concatenate(rows.options).T)
    stage, shard, recompute, sequence, offload = options
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
