"""Enumerate a plan space into one table, counting what the rules refuse.

Duplicates are left out by construction: without a pipeline every schedule is the same loop, only
interleaving has chunks, sequence parallelism needs tensor parallelism, ZeRO needs replicas.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import gcd
from typing import Any

import numpy as np

from parsim.cost.job import Job
from parsim.errors import PlanError
from parsim.model.model import Model
from parsim.plan import Plan, PlanSpace, PlanTable, Recompute
from parsim.plan.divisors import divisors
from parsim.plan.executor_rules import unrunnable
from parsim.plan.rules import V_SHAPED, check_plan, tensor_splits, violation
from parsim.plan.table import COLUMNS


@dataclass(frozen=True, slots=True, kw_only=True)
class Enumeration:
    """The legal plans and how many were looked at.

    `reasons` maps the first broken rule's message to how many plans it refused.
    """

    table: PlanTable | None
    enumerated: int
    illegal: int
    reasons: dict[str, int]


@dataclass(frozen=True, slots=True)
class _Shape:
    tp: int
    pp: int
    cp: int
    dp: int
    ep: int
    microbatch_size: int
    v: int
    schedule: str


_Option = tuple[int, Recompute, bool]
"""ZeRO stage, recomputation, sequence parallelism."""


def enumerate_plans(job: Job, space: PlanSpace) -> Enumeration:
    """Every legal plan of a space.

    Legality depends on the shape (degrees, micro-batch, chunks, schedule); each shape is checked
    once with the same rules as a single plan, and its options (ZeRO, recompute, sequence
    parallelism) are those that make sense for it.

    Raises:
        PlanError: the space holds a value that no plan could ever have.
    """
    rows: list[tuple[int, ...]] = []
    names: list[str] = []
    enumerated = 0
    reasons: Counter[str] = Counter()
    for shape in dict.fromkeys(_shapes(job, space)):  # a value may be listed twice
        options = list(dict.fromkeys(_options(space, shape, job.model)))
        enumerated += len(options)
        message = violation(_plan(space, shape, job.model), job.model, job.cluster)
        if message is not None:
            reasons[message] += len(options)
            continue
        for option in options:
            message = _unrunnable(job, space, shape, option)
            if message is not None:
                reasons[message] += 1
                continue
            rows.append(_row(space, shape, option))
            names.append(shape.schedule)
    return Enumeration(
        table=_table(space, rows, names) if rows else None,
        enumerated=enumerated,
        illegal=reasons.total(),
        reasons=dict(reasons),
    )


def _unrunnable(job: Job, space: PlanSpace, shape: _Shape, option: _Option) -> str | None:
    """Why parsim's executor, where the software is that, does not run an option of a shape."""
    if not job.software.executor:
        return None
    stage, recompute, sequence = option
    replicate, shard = _replicas(shape, stage)
    plan = replace(
        _plan(space, shape, job.model),
        zero_stage=stage,
        recompute=recompute,
        sequence_parallel=sequence,
        dp_replicate=replicate,
        dp_shard=shard,
    )
    return unrunnable(plan, job.model)


def _replicas(shape: _Shape, zero_stage: int) -> tuple[int, int]:
    """Replicas that hold all parameters, and those that share them: all of one or of the other."""
    return (1, shape.dp) if zero_stage else (shape.dp, 1)


def _shapes(job: Job, space: PlanSpace) -> Iterator[_Shape]:
    world, layers = job.cluster.num_devices, job.model.num_layers
    heads = max(tensor_splits(job.model).values(), default=world)
    fixed = own = None
    if space.common.actions is not None:  # a schedule of the user's own has its sizes
        fixed, own = (space.common.pp,), space.common.num_microbatches
    for tp, cp in product(space.tp or divisors(world, heads), space.cp):
        for pp in fixed or space.pp or divisors(world, layers):
            if world % (tp * pp * cp):
                continue
            dp = world // (tp * pp * cp)
            if space.global_batch_size % dp:
                continue
            count = space.global_batch_size // dp
            for size in space.microbatch_size or divisors(count):
                if count % size or own not in (None, count // size):
                    continue
                for schedule, v in _chunks(space, pp, layers):
                    for ep in _expert_degrees(job, space, dp * cp * tp):
                        yield _Shape(tp, pp, cp, dp, ep, size, v, schedule)


def _expert_degrees(job: Job, space: PlanSpace, ranks: int) -> Iterable[int]:
    """Degrees of expert parallelism on a stage's ranks: all that are legal, or those asked for."""
    experts = job.model.experts
    if space.ep is not None or experts is None:
        return space.ep or (1,)
    return divisors(gcd(experts.count, ranks))


def _chunks(space: PlanSpace, pp: int, layers: int) -> Iterator[tuple[str, int]]:
    """Schedules and their chunk counts for a pipeline of pp ranks."""
    if space.common.actions is not None:
        yield (space.common.schedule, space.common.v)
        return
    if pp == 1:
        yield ("1f1b", 1)
        return
    for schedule in space.schedule:
        if schedule in V_SHAPED:
            if space.v is None or 2 in space.v:
                yield (schedule, 2)
            continue
        if schedule != "interleaved_1f1b":
            if space.v is None or 1 in space.v:
                yield (schedule, 1)
            continue
        for v in space.v or chunk_counts(layers, pp):
            if v > 1:
                yield (schedule, v)


def chunk_counts(layers: int, pp: int) -> list[int]:
    """Chunks per rank worth trying: of equal size where the layers divide, else nearly equal.

    126 layers on 16 ranks: v = 4 has chunks of 2 layers but for the first and last stage, v = 2
    of 4 or 3 layers, v = 7 of 1 or 2.
    """
    if layers % pp == 0:
        return divisors(layers // pp)
    most = layers // pp
    return sorted({min(-(-layers // (pp * size)), most) for size in range(1, most + 1)})


def _options(space: PlanSpace, shape: _Shape, model: Model) -> Iterator[_Option]:
    whole = model.tokens % (shape.cp * shape.tp) == 0
    routed = model.experts is not None and shape.tp > 1  # each rank routes its own tokens
    for stage in space.zero_stage:
        if stage and shape.dp * shape.cp == 1:
            continue
        for recompute in space.recompute:
            for sequence in space.sequence_parallel:
                if (sequence and (shape.tp == 1 or not whole)) or (routed and not sequence):
                    continue
                yield (stage, recompute, sequence)


def _plan(space: PlanSpace, shape: _Shape, model: Model) -> Plan:
    microbatches = space.global_batch_size // (shape.dp * shape.microbatch_size)
    return replace(
        space.common,
        tp=shape.tp,
        pp=shape.pp,
        dp_replicate=shape.dp,
        dp_shard=1,
        cp=shape.cp,
        ep=shape.ep,
        zero_stage=0,
        microbatch_size=shape.microbatch_size,
        num_microbatches=microbatches,
        schedule=shape.schedule,
        v=shape.v,
        sequence_parallel=model.experts is not None and shape.tp > 1,
        stage_layers=None,
    )


def _row(space: PlanSpace, shape: _Shape, option: _Option) -> tuple[int, ...]:
    """Values of a plan in the order of `COLUMNS`."""
    stage, recompute, sequence = option
    microbatches = space.global_batch_size // (shape.dp * shape.microbatch_size)
    degrees = (shape.tp, shape.pp, *_replicas(shape, stage), shape.cp, shape.ep, space.common.etp)
    pipeline = (shape.microbatch_size, microbatches, shape.v)
    return (*degrees, *pipeline, stage, int(sequence), int(recompute))


def _table(space: PlanSpace, rows: list[tuple[int, ...]], names: list[str]) -> PlanTable:
    columns: dict[str, Any] = dict(zip(COLUMNS, np.array(rows, dtype=np.int64).T, strict=True))
    columns["sequence_parallel"] = columns["sequence_parallel"] > 0
    common = replace(space.common, stage_layers=None)
    return PlanTable(**columns, schedule=np.array(names), common=common)


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
    for stage in space.zero_stage:
        if stage not in (0, 1, 2, 3):
            raise PlanError(f"zero_stage={stage} is unknown; allowed: 0, 1, 2, 3")
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


def nothing_legal(listed: Enumeration) -> str:
    """Why a space holds no plan at all."""
    if not listed.reasons:
        return (
            "no plan is legal: no tp x pp x dp of the space multiplies to the number of devices "
            "and divides the global batch; widen tp, pp or microbatch_size"
        )
    first = max(listed.reasons, key=listed.reasons.__getitem__)
    return f"no plan is legal: {listed.illegal} of {listed.enumerated} refused; most often: {first}"
