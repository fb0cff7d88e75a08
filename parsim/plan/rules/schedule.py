"""Rules of schedules: chunks, micro-batches and neighbours that each of them needs."""

from __future__ import annotations

import re

from parsim.cluster.hardware import Cluster
from parsim.model.model import Model
from parsim.plan.names import AUTO, CHUNKED, SCHEDULE_NAMES, SPLIT, TWO_WAY, V_SHAPED, WITHOUT_FLUSH
from parsim.plan.record import Plan

MOST_SEARCHED = 60_000
"""Actions of the longest schedule that is searched for: some seconds."""

MAX_ACTIONS = 1_000_000
"""Largest schedule that is simulated: some ten seconds with the memory of eager PyTorch, which a
walk along its actions finds."""


def schedule_rules(plan: Plan, model: Model, cluster: Cluster) -> str | None:
    """Degrees and micro-batches that the schedule can order."""
    return schedule_refusal(plan)


def schedule_refusal(plan: Plan) -> str | None:
    """Why a schedule is refused by ranks, chunks and micro-batches alone, whatever the model."""
    if plan.actions is not None:
        return _users_schedule(plan)
    if plan.schedule in TWO_WAY:
        return _both_ways(plan)
    if plan.schedule in SPLIT:
        return _zero_bubble(plan)
    if plan.schedule in CHUNKED:
        return _chunked(plan)
    if plan.schedule in WITHOUT_FLUSH:
        return _without_flush(plan)
    if plan.schedule == AUTO and (message := _searched(plan)):
        return message
    if plan.v > 1:
        return (
            f"v={plan.v} needs schedule='interleaved_1f1b', but schedule={plan.schedule!r} has "
            f"one chunk per rank; use v=1 or schedule='interleaved_1f1b'"
        )
    return None


def _chunked(plan: Plan) -> str | None:
    if plan.v < 2 or plan.pp < 2:
        return (
            f"schedule={plan.schedule!r} needs pp >= 2 and v >= 2, but pp={plan.pp}, "
            f"v={plan.v}; use {'v=2' if plan.pp > 1 else 'pp=2 and v=2'}, or schedule='1f1b'"
        )
    if plan.schedule == "hanayo" and plan.v % 2:
        return f"schedule='hanayo' has two chunks per rank and wave, but v={plan.v}; use an even v"
    if plan.schedule == "interleaved_1f1b" and plan.num_microbatches % plan.pp:
        return (
            f"schedule='interleaved_1f1b': pp={plan.pp} does not divide "
            f"num_microbatches={plan.num_microbatches}; allowed: multiples of {plan.pp}"
        )
    return None


def _zero_bubble(plan: Plan) -> str | None:
    chunks = 2 if plan.schedule in V_SHAPED else 1
    if plan.pp < 2:
        return f"schedule={plan.schedule!r} needs pp >= 2, but pp={plan.pp}; use schedule='1f1b'"
    if plan.v != chunks:
        needed = "two chunks per rank, placed as a V" if chunks == 2 else "one chunk per rank"
        return f"schedule={plan.schedule!r} has {needed}, but v={plan.v}; use v={chunks}"
    return None


def _searched(plan: Plan) -> str | None:
    """What an order can be searched for."""
    if plan.pp < 2:
        return f"schedule={AUTO!r} needs pp >= 2, but pp={plan.pp}; use schedule='1f1b'"
    most = MOST_SEARCHED // (3 * plan.pp)
    if plan.num_microbatches > most:
        return (
            f"schedule={AUTO!r} with pp={plan.pp} orders at most {most:,} micro-batches in a few "
            f"seconds, but num_microbatches={plan.num_microbatches}; use a named schedule, whose "
            f"middle repeats, or a larger microbatch_size"
        )
    return None


def _both_ways(plan: Plan) -> str | None:
    """What two directions share out evenly, one stage of each on every rank."""
    where = f"schedule={plan.schedule!r} runs in two directions"
    for name in ("pp", "num_microbatches"):
        value = getattr(plan, name)
        if value % 2 or (name == "pp" and value < 2):
            return f"{where}, but {name}={value}; allowed: 2, 4, 6, ..."
    odd = [count for count in plan.microbatches if count % 2]
    if odd:
        return f"{where}, but a replica has {odd[0]} micro-batches; give each an even number"
    if plan.v > 1:
        return f"{where} with one chunk each per rank, but v={plan.v}; use v=1"
    return None


def _without_flush(plan: Plan) -> str | None:
    """What a pipeline that updates between micro-batches cannot stand beside."""
    where = f"schedule={plan.schedule!r}"
    if plan.pp < 2:
        return f"{where} needs pp >= 2, but pp={plan.pp}; use schedule='1f1b'"
    for name in ("v", "dp", "cp"):
        if getattr(plan, name) > 1:
            return (
                f"{where} updates a stage behind a backward, without others to reduce with, but "
                f"{name}={getattr(plan, name)}; use {name}=1"
            )
    if plan.strategy.own_program:
        return f"{where} cannot stand beside strategy {plan.strategy.name}; leave one of them out"
    if plan.schedule == "pipedream_2bw" and plan.num_microbatches < plan.pp - 1:
        return (
            f"{where} with num_microbatches={plan.num_microbatches} would need more than two "
            f"versions of pp={plan.pp} stages; use at least {plan.pp - 1} micro-batches"
        )
    return None


def _users_schedule(plan: Plan) -> str | None:
    """A user's schedule needs a name; `parsim.schedule.parse_user_schedule` checks its actions."""
    if plan.schedule in SCHEDULE_NAMES:
        return (
            f"schedule={plan.schedule!r} is the name of a schedule that parsim builds, but actions "
            f"are given too; name them otherwise, e.g. '{plan.schedule}.csv'"
        )
    if plan.pp == 1:
        return (
            f"schedule={plan.schedule!r} needs pp >= 2, but pp=1: without a pipeline the step is a "
            f"plain loop over micro-batches; leave schedule out"
        )
    return None


def splits_backward(plan: Plan) -> bool:
    """Whether the backward of a plan's schedule is in two actions, I and W."""
    if plan.actions is None:
        return plan.pp > 1 and plan.schedule in SPLIT
    return re.search(r"\d[IW]", plan.actions) is not None


def size_rules(plan: Plan, model: Model, cluster: Cluster) -> str | None:
    """A schedule that is small enough to be simulated."""
    each = 3 if plan.schedule in SPLIT else 2
    actions = each * plan.num_stages * plan.num_microbatches
    if actions <= MAX_ACTIONS:
        return None
    return (
        f"num_microbatches={plan.num_microbatches} on {plan.num_stages} stages is a schedule of "
        f"{actions:,} actions; at most {MAX_ACTIONS:,} are simulated: use a larger "
        f"microbatch_size, more replicas or a smaller global batch"
    )
